#pragma once

// Private to this folder: what the .cu files offer to the device.

#include <cuda_runtime.h>
#include <memory>

#include "gpu/array/array_ops.h"
#include "gpu/array/gather_ascans.h"
#include "gpu/array/motion_contrast.h"
#include "gpu/array/project.h"
#include "gpu/device/cuda/cuda_status.h"
#include "gpu/spectral/spectral.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::cuda {

/// memory.cu. Launches only; the caller reads the last error.
void LaunchFill(cudaStream_t stream, void* dst, int64_t bytes, uint32_t pattern);
/// Keeps `stream` busy for `ns`, with one thread.
void LaunchDelay(cudaStream_t stream, int64_t ns);
/// Writes the device's global timer, in nanoseconds, to `out` in page-locked host memory.
void LaunchStamp(cudaStream_t stream, int64_t* out);
/// *out must be zero before.
void LaunchDigest(cudaStream_t stream, const void* src, int64_t bytes, uint64_t* out);

std::unique_ptr<ProjectOps> MakeCudaProjectOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<ResampleOps> MakeCudaResampleOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<RepeatOps> MakeCudaRepeatOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<TomographyOps> MakeCudaTomographyOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<PrepareOps> MakeCudaPrepareOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<SinogramOps> MakeCudaSinogramOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<ArrayOps> MakeCudaArrayOps(int ordinal, std::shared_ptr<DeviceHealth> health);

/// `device` gives memory for plans; must outlive the ops.
std::unique_ptr<SpectralOps> MakeCudaSpectralOps(int ordinal, Device* device, std::shared_ptr<DeviceHealth> health);

}  // namespace octavo::cuda
