#pragma once

#include <cstdint>

#include "gpu/tomography/reconstruct_kernels.h"

// The inner loops of the projectors, compiled once per SIMD target. Groups have 1 or kHostLanes
// lanes.
namespace octavo::inline gpu::host {

inline constexpr int64_t kHostLanes = 16;
/// The number of rays, or of pixels of a row, that are computed side by side; the numbers of angles
/// and of rows that a block processes in turn while its part of the input is in the cache.
inline constexpr int64_t kBlock = 16, kBlockAngles = 8, kBlockRows = 16;

/// Computes kBlock rays from first_ray on of the angles [begin, end), at most kBlockAngles, into
/// one group of sinograms. All these angles step along the rows of `lines`, one group of images (or
/// of transposed images).
void ForwardBlock(const RayView& view, int64_t group, int64_t begin, int64_t end, int64_t first_ray,
                  const float* lines, float* sinogram);

/// Computes the pixels of the rows [row, row + kBlockRows) and columns [column, column + kBlock) of
/// one group, over the angles [begin, end).
void BackBlock(const RayView& view, int64_t group, int64_t begin, int64_t end, int64_t row,
               int64_t column, const float* sinogram, float* image);

/// Adds to the pixels of the rows [row, row + kBlockRows) and columns [column, column + kBlock) of
/// a plane what TomographyOps::AddPlane adds.
void PlaneBlock(const RayView& view, const math::VolumePlane& plane, int64_t row, int64_t column,
                const float* sinogram, float* image);

}  // namespace octavo::inline gpu::host
