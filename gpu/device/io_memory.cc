#include "gpu/device/io_memory.h"

namespace octavo::inline gpu {

absl::StatusOr<DeviceBuffer> AllocateForIo(Device& device, int64_t bytes) {
  if (auto* source = dynamic_cast<IoMemorySource*>(&device)) return source->AllocateForIo(bytes);
  return device.Allocate(bytes);
}

absl::Status MakeCurrent(Device& device) {
  if (auto* source = dynamic_cast<IoMemorySource*>(&device)) return source->MakeCurrent();
  return absl::OkStatus();
}

}  // namespace octavo::inline gpu
