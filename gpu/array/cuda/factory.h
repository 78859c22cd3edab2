#pragma once

#include <cuda_runtime.h>
#include <memory>

#include "gpu/array/array_ops.h"
#include "gpu/array/gather_ascans.h"
#include "gpu/array/motion_contrast.h"
#include "gpu/array/project.h"
#include "gpu/device/cuda/cuda_status.h"

// CUDA's operators of this family.
namespace octavo::inline gpu::cuda {

std::unique_ptr<ProjectOps> MakeCudaProjectOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<ResampleOps> MakeCudaResampleOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<RepeatOps> MakeCudaRepeatOps(int ordinal, std::shared_ptr<DeviceHealth> health);
std::unique_ptr<ArrayOps> MakeCudaArrayOps(int ordinal, std::shared_ptr<DeviceHealth> health);

}  // namespace octavo::inline gpu::cuda
