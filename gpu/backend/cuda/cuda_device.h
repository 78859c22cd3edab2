#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"

namespace octavo::inline gpu::cuda {

/// All visible GPUs, numbered from first_index. NotFound or FailedPrecondition with the reason if
/// there is none or the driver cannot be used; never crashes on a machine without one.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenCudaDevices(int first_index);

}  // namespace octavo::inline gpu::cuda
