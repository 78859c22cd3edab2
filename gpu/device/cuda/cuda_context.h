#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/cuda/cuda_status.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu::cuda {

/// The properties of a device that CUDA's operators need in addition to Device.
struct CudaContext {
  int ordinal = 0;  // as the CUDA runtime counts
  std::shared_ptr<DeviceHealth> health;
};

/// A device that has a CUDA context: a GPU.
class CudaContextSource {
 public:
  virtual ~CudaContextSource() = default;
  virtual CudaContext cuda_context() const = 0;
};

/// For the factories of twins: InvalidArgument, naming the family and the device, unless `device`
/// is a GPU of this backend.
absl::StatusOr<CudaContext> FindCudaContext(Device& device, const OperatorFamily& family);

}  // namespace octavo::inline gpu::cuda
