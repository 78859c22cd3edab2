#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ref.h"
#include "gpu/array/axes_spec.h"
#include "gpu/device/device.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/elements.h"

// The places of extremes along an axis: an operation of a chain (gpu/array/array_ops.h), and its
// step.
namespace octavo::inline gpu {

/// The index, along `axis`, of the first smallest or largest of real numbers: i64, or `scalar`
/// (i64, f32, f64). NaN counts as the extreme, unless skip_nan ignores it. -1 where no number
/// counts. Source: numpy.argmin, argmax, nanargmin, nanargmax.
struct ArgExtremeOp {
  math::Extreme extreme = math::Extreme::kMax;
  int64_t axis = -1;
  bool keep_dims = false, skip_nan = false;
  Scalar scalar{};
  ArrayRef mask;  // u8 of the array's shape: only elements where it is not 0 count
};

/// Of each result, the place of the extreme along run[1]; run[0] is 1.
struct ArgExtremeSpec {
  Scalar in{}, out{};
  math::Extreme extreme = math::Extreme::kMax;
  bool skip_nan = false;
  AxesSpec axes;
  ArrayRef mask;
  int64_t lanes = 1;  // numbers to each element of the mask
};

/// Operator family of places of extremes. Enqueue only; memory must live until the stream has
/// passed.
class ExtremeOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"places of extremes"};

  /// `mask` may be null.
  virtual absl::Status ArgExtreme(StreamRef stream, const ArgExtremeSpec& spec, const void* in,
                                  const uint8_t* mask, void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<ExtremeOps>> MakeExtremeOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<ExtremeOps>> MakeExtremeOps(Device& device);
}

}  // namespace octavo::inline gpu
