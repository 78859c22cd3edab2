#pragma once

#include <cuda_runtime.h>
#include <memory>

#include "gpu/device/cuda/cuda_status.h"
#include "gpu/spectral/spectral.h"

// CUDA's operators of this family.
namespace octavo::inline gpu::cuda {

/// `device` gives memory for plans; must outlive the ops.
std::unique_ptr<SpectralOps> MakeCudaSpectralOps(int ordinal, Device* device,
                                                 std::shared_ptr<DeviceHealth> health);

}  // namespace octavo::inline gpu::cuda
