#include "gpu/array/coarsen.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/scalar.h"

namespace octavo::inline gpu {

DType ResultOf(const Coarsening& coarsening, DType volume) {
  if (coarsening.window.has_value()) return DType::kU8;
  return coarsening.kind == math::Reduction::kMax ? ProjectionOf(volume) : DType::kF32;
}

absl::StatusOr<math::CoarsenSpec> PlanCoarsening(const Coarsening& c, DType dtype,
                                                 const int64_t shape[3]) {
  if (c.factor < 1 || (c.factor & (c.factor - 1)) != 0)
    return absl::InvalidArgumentError(absl::StrCat("the factor ", c.factor, " is no power of two"));
  if (c.kind != math::Reduction::kMax && c.kind != math::Reduction::kMean)
    return absl::InvalidArgumentError("a cube is reduced to its maximum or its mean");
  if (c.window.has_value() && !(c.window->hi > c.window->lo))
    return absl::InvalidArgumentError(
        absl::StrCat("the window from ", c.window->lo, " to ", c.window->hi, " is empty"));
  math::CoarsenSpec spec{.in = ScalarOf(dtype),
                         .out = ScalarOf(ResultOf(c, dtype)),
                         .part = dtype == DType::kC64 ? math::Part::kMagnitude : math::Part::kAll,
                         .kind = c.kind,
                         .factor = c.factor,
                         .stride = {shape[1] * shape[2], shape[2], 1},
                         .windowed = c.window.has_value()};
  for (int d = 0; d < 3; ++d) {
    if (c.box.start[d] < 0 || c.box.count[d] < 1 || c.box.count[d] > shape[d] - c.box.start[d]) {
      return absl::OutOfRangeError(absl::StrCat("axis ", d, " has 0 to ", shape[d] - 1,
                                                ", asked are ", c.box.count[d], " samples from ",
                                                c.box.start[d]));
    }
    spec.count[d] = c.box.count[d];
    spec.results[d] = c.results(d);
    spec.offset += c.box.start[d] * spec.stride[d];
  }
  if (c.window.has_value()) {
    spec.lo = c.window->lo;
    spec.gain = 255 / (c.window->hi - c.window->lo);
  }
  return spec;
}

absl::Status Coarsen(StreamRef stream, Device& device, const VolumeView& volume,
                     const Coarsening& coarsening, void* out) {
  OCTAVO_ASSIGN_OR_RETURN(const math::CoarsenSpec spec,
                          PlanCoarsening(coarsening, volume.dtype, volume.shape));
  OCTAVO_ASSIGN_OR_RETURN(CoarsenOps* const ops, FindOperators<CoarsenOps>(device));
  return ops->Coarsen(stream, spec, volume.data, out);
}

}  // namespace octavo::inline gpu
