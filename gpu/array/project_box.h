#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

#include "gpu/array/project.h"
#include "gpu/device/device.h"
#include "gpu/device/dtype.h"
#include "gpu/math/array_ops.h"

namespace octavo::inline gpu {

/// A box of a volume [a, b, c] of any element type, projected along one of its axes. NaN is left
/// out, and complex numbers are projected by their magnitude.
struct BoxProjection {
  int axis = 0;  // position in the volume's shape
  /// kMax, kMin, kMean or kStd; nothing: a plane, whose box has one sample along the axis.
  std::optional<math::Reduction> kind;
  Box3 box;

  /// Elements of the result: the box without the axis.
  int64_t results() const { return box.count[0] * box.count[1] * box.count[2] / box.count[axis]; }
};

/// Element type of the result: of a plane that of the volume; of extremes the same, but f32 for
/// complex volumes; of means and deviations f32.
DType ResultOf(const BoxProjection& projection, DType volume);

/// The device memory that ProjectBox needs beside its result.
int64_t ProjectBoxScratch(const BoxProjection& projection);

/// Enqueues the projection into `out`, device memory of ResultOf, C order of the two axes that
/// remain. `scratch`: device memory of ProjectBoxScratch. OutOfRange unless the box lies in the
/// volume.
absl::Status ProjectBox(StreamRef stream, Device& device, const VolumeView& volume,
                        const BoxProjection& projection, void* scratch, void* out);

}  // namespace octavo::inline gpu
