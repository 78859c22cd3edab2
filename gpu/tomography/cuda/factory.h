#pragma once

#include <cuda_runtime.h>
#include <memory>

#include "gpu/device/cuda/cuda_status.h"
#include "gpu/tomography/preprocess_ops.h"
#include "gpu/tomography/reconstruct_kernels.h"

// CUDA's operators of this family.
namespace octavo::inline gpu::cuda {

std::unique_ptr<TomographyOps> MakeCudaTomographyOps(int ordinal,
                                                     std::shared_ptr<DeviceHealth> health);
std::unique_ptr<PrepareOps> MakeCudaPrepareOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<SinogramOps> MakeCudaSinogramOps(int ordinal, std::shared_ptr<DeviceHealth> health);

}  // namespace octavo::inline gpu::cuda
