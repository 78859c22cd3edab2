#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"

namespace octavo::job {

/// The device memory that a running job allocates from its plan's workspace. Used by the job's
/// thread only. The stream must have passed all work on it before it is destroyed.
class JobWorkspace {
 public:
  JobWorkspace(Device& device, int64_t bytes) : device_(device), bytes_(bytes) {}

  /// As those of JobRun.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* data);
  absl::Status Charge(int64_t bytes);
  void Discharge(int64_t bytes) { used_ -= bytes; }
  void Keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

 private:
  Device& device_;
  const int64_t bytes_;  // planned
  int64_t used_ = 0;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::shared_ptr<void>> kept_;  // destroyed before the buffers, which they may use
};

}  // namespace octavo::job
