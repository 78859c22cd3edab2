#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/buffer.h"
#include "gpu/device/device.h"

namespace octavo::inline gpu {

/// A device whose memory the driver of a storage device may be given as a destination (cuFile). A
/// device without this interface, such as the host, needs no special memory for it.
class IoMemorySource {
 public:
  virtual ~IoMemorySource() = default;
  virtual absl::StatusOr<DeviceBuffer> AllocateForIo(int64_t bytes) = 0;
  virtual absl::Status MakeCurrent() = 0;
};

/// Device memory that lies by itself, at a multiple of 4096, where storage drivers can register it:
/// not a part of a pool. Allocating and freeing wait for the device and take milliseconds, so do
/// both rarely. Errors as Device::Allocate.
absl::StatusOr<DeviceBuffer> AllocateForIo(Device& device, int64_t bytes);

/// Makes the device the calling thread's, for libraries that use the thread's device.
absl::Status MakeCurrent(Device& device);

}  // namespace octavo::inline gpu
