#pragma once

// The kernels of memory.cu, which work on a device's memory and read its clock.

#include <cuda_runtime.h>
#include <memory>

#include "gpu/device/cuda/cuda_status.h"

namespace octavo::inline gpu::cuda {

/// memory.cu. Launches only; the caller reads the last error.
void LaunchFill(cudaStream_t stream, void* dst, int64_t bytes, uint32_t pattern);
/// Keeps `stream` busy for `ns`, with one thread.
void LaunchDelay(cudaStream_t stream, int64_t ns);
/// Writes the device's global timer, in nanoseconds, to `out` in page-locked host memory.
void LaunchStamp(cudaStream_t stream, int64_t* out);
/// *out must be zero before.
void LaunchDigest(cudaStream_t stream, const void* src, int64_t bytes, uint64_t* out);

}  // namespace octavo::inline gpu::cuda
