#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "gpu/device/buffer.h"
#include "gpu/device/device.h"

namespace octavo::inline gpu {

/// A device that can page-lock memory which the caller has mapped. A device without this interface,
/// such as the host, needs no page-locking.
class PageLocker {
 public:
  virtual ~PageLocker() = default;
  virtual absl::StatusOr<PinnedBuffer> LockPages(void* data, int64_t bytes) = 0;
};

/// Page-locks host memory that the caller has mapped (`data` page aligned; it may be shared with
/// another process), so that copies to and from all devices of the backend run at full rate. The
/// buffer ends the lock but does not unmap the memory: destroy the buffer before unmapping, once
/// every stream has passed the last use. Locking and unlocking may take milliseconds (10 ms per 256
/// MiB), so never do either on the block path.
absl::StatusOr<PinnedBuffer> RegisterPinned(Device& device, void* data, int64_t bytes);

}  // namespace octavo::inline gpu
