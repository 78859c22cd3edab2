#include "gpu/array/project_box.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/base/status.h"
#include "gpu/device/scalar.h"

namespace octavo::inline gpu {
namespace {

// The two axes that remain, in their order.
struct Kept {
  int first, second;
};
Kept KeptAxes(int axis) { return {axis == 0 ? 1 : 0, axis == 2 ? 1 : 2}; }

// A long reduction with few results is cut in parts, which fill the device.
int64_t PartsOf(const BoxProjection& p) {
  return std::clamp<int64_t>(65536 / p.results(), 1,
                             std::max<int64_t>(1, p.box.count[p.axis] / 1024));
}

absl::Status Check(const VolumeView& volume, const BoxProjection& p) {
  for (int d = 0; d < 3; ++d) {
    if (p.box.start[d] < 0 || p.box.count[d] < 1 ||
        p.box.count[d] > volume.shape[d] - p.box.start[d]) {
      return absl::OutOfRangeError(absl::StrCat("axis ", d, " has 0 to ", volume.shape[d] - 1,
                                                ", asked are ", p.box.count[d], " samples from ",
                                                p.box.start[d]));
    }
  }
  if (!p.kind.has_value() && p.box.count[p.axis] != 1)
    return absl::OutOfRangeError("a plane has one sample along its axis");
  return absl::OkStatus();
}

}  // namespace

DType ResultOf(const BoxProjection& projection, DType volume) {
  if (!projection.kind.has_value()) return volume;
  const bool extreme =
      *projection.kind == math::Reduction::kMax || *projection.kind == math::Reduction::kMin;
  return extreme ? ProjectionOf(volume) : DType::kF32;
}

int64_t ProjectBoxScratch(const BoxProjection& p) {
  const int64_t parts = p.kind.has_value() ? PartsOf(p) : 1;
  return parts == 1 ? 0 : parts * p.results() * static_cast<int64_t>(sizeof(math::Accumulator));
}

absl::Status ProjectBox(StreamRef stream, Device& device, const VolumeView& volume,
                        const BoxProjection& p, void* scratch, void* out) {
  OCTAVO_RETURN_IF_ERROR(Check(volume, p));
  OCTAVO_ASSIGN_OR_RETURN(ArrayOps* const ops, FindOperators<ArrayOps>(device));
  const int64_t stride[3] = {volume.shape[1] * volume.shape[2], volume.shape[2], 1};
  int64_t offset = 0;
  for (int d = 0; d < 3; ++d) offset += p.box.start[d] * stride[d];
  const Kept kept = KeptAxes(p.axis);
  if (!p.kind.has_value()) {
    return ops->Gather(stream,
                       {.bytes = SizeOf(volume.dtype),
                        .out = {1, 1, p.box.count[kept.first], p.box.count[kept.second]},
                        .stride = {0, 0, stride[kept.first], stride[kept.second]},
                        .offset = offset},
                       volume.data, out);
  }
  return ops->Reduce(
      stream,
      {.in = ScalarOf(volume.dtype),
       .out = ScalarOf(ResultOf(p, volume.dtype)),
       .part = volume.dtype == DType::kC64 ? math::Part::kMagnitude : math::Part::kAll,
       .kind = *p.kind,
       .skip_nan = true,
       .axes = {.keep = {p.box.count[kept.first], p.box.count[kept.second]},
                .keep_stride = {stride[kept.first], stride[kept.second]},
                .run = {1, p.box.count[p.axis]},
                .run_stride = {0, stride[p.axis]},
                .offset = offset},
       .parts = PartsOf(p)},
      volume.data, /*mask=*/nullptr, out, scratch);
}

}  // namespace octavo::inline gpu
