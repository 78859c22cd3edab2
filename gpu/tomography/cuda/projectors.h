#pragma once

// Private to this folder: the projectors' launches. The caller reads the last error.

#include <cuda_runtime.h>

#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu::cuda {

/// Slices side by side in a group: one 16-byte load serves all of them.
inline constexpr int64_t kCudaLanes = 4;

void LaunchForward(cudaStream_t stream, const RayView& view, const AngleRange& range,
                   const float* image, const float* transposed, float* sinogram);
void LaunchBack(cudaStream_t stream, const RayView& view, const AngleRange& range,
                const float* sinogram, float* image);
void LaunchAddPlane(cudaStream_t stream, const RayView& view, const math::VolumePlane& plane,
                    const float* sinogram, float* image);
void LaunchFilterRows(cudaStream_t stream, const RayView& view, const RowFilter& filter,
                      const float* in, float* out);

}  // namespace octavo::inline gpu::cuda
