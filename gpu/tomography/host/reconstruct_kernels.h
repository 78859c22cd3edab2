#pragma once

#include <cstdint>

#include "gpu/tomography/reconstruct_kernels.h"

// The inner loops of the projectors, compiled once per SIMD target. Groups have 1 or kHostLanes
// lanes.
namespace octavo::inline gpu::host {

inline constexpr int64_t kHostLanes = 16;
/// Rays, or pixels of a row, that go side by side; angles and rows that a block takes in turn while
/// its part of the input is near.
inline constexpr int64_t kBlock = 16, kBlockAngles = 8, kBlockRows = 16;

/// Rays first_ray … + kBlock of the angles [begin, end), at most kBlockAngles, all stepping along
/// the rows of `lines`, one group of images (or of transposed ones), into one group of sinograms.
void ForwardBlock(const RayView& view, int64_t group, int64_t begin, int64_t end, int64_t first_ray,
                  const float* lines, float* sinogram);

/// Pixels of the rows [row, row + kBlockRows) and columns [column, column + kBlock) of one group,
/// over the angles [begin, end).
void BackBlock(const RayView& view, int64_t group, int64_t begin, int64_t end, int64_t row,
               int64_t column, const float* sinogram, float* image);

/// One row of detectors through the filter; `in` and `out` start at bin 0.
void FilterRow(const RayView& view, const RowFilter& filter, const float* in, float* out);

}  // namespace octavo::inline gpu::host
