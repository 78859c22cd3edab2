#pragma once

#include <cstdint>

#include "gpu/math/array_ops.h"
#include "gpu/math/host_device.h"
#include "gpu/math/scalar.h"

// Coarse pictures of volumes, shared by all backends: each sample stands for a cube of voxels.
namespace octavo::inline gpu::math {

/// The work of one launch. Result (i, j, k) stands for the voxels (i, j, k) × factor ... + factor -
/// 1 of the box, or for those of them that the box has.
struct CoarsenSpec {
  Scalar in{}, out{};
  Part part = Part::kAll;
  Reduction kind = Reduction::kMax;
  int64_t factor = 1;
  int64_t count[3] = {1, 1, 1};   // voxels of the box
  int64_t stride[3] = {0, 0, 1};  // of the volume, in elements
  int64_t offset = 0;             // of the box's first voxel
  int64_t results[3] = {1, 1, 1};
  /// The result is (v - lo) × gain, as `out` rounds and clips it; else v itself.
  bool windowed = false;
  double lo = 0, gain = 1;

  OCTAVO_HOST_DEVICE int64_t all() const { return results[0] * results[1] * results[2]; }
};

/// Threads that share a row of a cube, if `lanes` threads share the cube. All are powers of two.
OCTAVO_HOST_DEVICE inline int64_t LanesOfRow(const CoarsenSpec& s, int64_t lanes) {
  return s.factor < lanes ? s.factor : lanes;
}

/// Includes the voxels of result `at` that are those of `lane`, of `lanes` ones. Neighbouring lanes
/// read neighbouring voxels.
OCTAVO_HOST_DEVICE inline void IncludeCube(const CoarsenSpec& s, const void* in, int64_t at,
                                           int64_t lane, int64_t lanes, Accumulator* sum) {
  int64_t first[3], extent[3];
  for (int d = 2; d >= 0; --d) {
    const int64_t index = at % s.results[d];
    at /= s.results[d];
    first[d] = index * s.factor;
    extent[d] = s.count[d] - first[d] < s.factor ? s.count[d] - first[d] : s.factor;
  }
  const int64_t row_lanes = LanesOfRow(s, lanes), row_step = lanes / row_lanes;
  const int64_t begin =
      s.offset + first[0] * s.stride[0] + first[1] * s.stride[1] + first[2] * s.stride[2];
  for (int64_t row = lane / row_lanes; row < s.factor * s.factor; row += row_step) {
    const int64_t i = row / s.factor, j = row % s.factor;
    if (i >= extent[0] || j >= extent[1]) continue;
    const int64_t start = begin + i * s.stride[0] + j * s.stride[1];
    for (int64_t k = lane % row_lanes; k < extent[2]; k += row_lanes)
      Include(s.kind, PartOf(s.part, Load(s.in, in, start + k * s.stride[2])), sum);
  }
}

/// Stores result `at` from the voxels of its cube. NaN counts as no voxel; none gives NaN.
OCTAVO_HOST_DEVICE inline void StoreCoarse(const CoarsenSpec& s, const Accumulator& sum, int64_t at,
                                           void* out) {
  Number v = Finish(s.kind, /*skip_nan=*/true, sum);
  if (s.windowed) v = {(v.re - s.lo) * s.gain};
  Store(s.out, out, at, v);
}

}  // namespace octavo::inline gpu::math
