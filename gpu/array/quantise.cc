#include "gpu/array/quantise.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/scalar.h"

namespace octavo::inline gpu {

absl::Status Quantise(StreamRef stream, Device& device, const Quantisation& q,
                      DeviceSpan<const float> in, void* out, DeviceSpan<uint64_t> clipped) {
  if (q.out != DType::kU8 && q.out != DType::kU16 && q.out != DType::kF16)
    return FieldNotAllowed("out", Info(q.out).name, "u8, u16, f16");
  const bool window = q.out != DType::kF16;
  if (window && !(q.lo < q.hi && std::isfinite(q.lo) && std::isfinite(q.hi))) {
    return InvalidField("lo", absl::StrCat("to hi is ", q.lo, " to ", q.hi,
                                           "; allowed are finite numbers, lo below hi"));
  }
  if (clipped.count() < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("there is room for ", clipped.count(), " counts; needed are 2"));
  if (in.count() == 0) return absl::OkStatus();
  math::QuantiseSpec spec{.out = ScalarOf(q.out), .count = in.count()};
  if (window) {
    spec.lo = q.lo;
    spec.width = q.hi - q.lo;
    spec.top = static_cast<double>(HighestOf(q.out));
  }
  OCTAVO_ASSIGN_OR_RETURN(QuantiseOps* const ops, FindOperators<QuantiseOps>(device));
  return ops->Quantise(stream, spec, in.data(), out, clipped.data());
}

}  // namespace octavo::inline gpu
