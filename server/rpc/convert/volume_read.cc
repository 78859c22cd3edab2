#include "server/rpc/convert/volume_read.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/rpc/convert/convert.h"

namespace octavo::rpc {

absl::StatusOr<model::VolumeRead> DecodeVolumeRead(const v1::ReadVolumeRequest& in) {
  constexpr uint32_t kMostDownsample = 64;
  model::VolumeRead out{.volume = in.name(),
                        .start = {in.start().begin(), in.start().end()},
                        .count = {in.count().begin(), in.count().end()}};
  const uint32_t factor = in.downsample();
  if (factor > kMostDownsample || (factor & (factor - 1)) != 0)
    return FieldNotAllowed("downsample", factor, "0 (1), 1, 2, 4, 8, 16, 32 or 64");
  if (factor > 1) out.downsample = factor;
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("downsampling", in.downsampling(), v1::Downsampling_IsValid(in.downsampling())));
  if (in.downsampling() != v1::DOWNSAMPLING_UNSPECIFIED && out.downsample == 1)
    return InvalidField("downsampling", "has no effect without a `downsample` of 2 or more");
  out.mean = in.downsampling() == v1::DOWNSAMPLING_MEAN;
  if (in.has_window()) {
    const auto lo = static_cast<double>(in.window().lo()),
               hi = static_cast<double>(in.window().hi());
    OCTAVO_RETURN_IF_ERROR(CheckFinite("window.lo", lo));
    OCTAVO_RETURN_IF_ERROR(CheckFinite("window.hi", hi));
    if (!(lo < hi))
      return InvalidField("window", absl::StrCat("is ", lo, " to ", hi, "; lo must be below hi"));
    out.window = {lo, hi};
  }
  return out;
}

}  // namespace octavo::rpc
