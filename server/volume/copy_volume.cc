#include "server/volume/copy_volume.h"

#include "absl/status/status.h"

#include "gpu/base/status.h"
#include "server/memory/stripe_layout.h"

namespace octavo::volume {

absl::StatusOr<model::Bytes> CopyVolumeToHost(Device& device, StreamRef stream,
                                              memory::FramePool& pool, const VolumeHold& hold) {
  OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> memory,
                          pool.Get(hold.status.bytes, memory::FramePool::Use::kFrame));
  if (hold.cursor != nullptr) {
    OCTAVO_RETURN_IF_ERROR(hold.cursor->Read(0, hold.status.bytes, memory.get()));
    return model::Bytes{.owner = memory, .data = memory.get(), .size = hold.status.bytes};
  }
  OCTAVO_RETURN_IF_ERROR(memory::CopyVolumeBytes(device, stream, memory.get(), *hold.slot,
                                                 hold.status, 0, hold.status.bytes));
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  return model::Bytes{.owner = memory, .data = memory.get(), .size = hold.status.bytes};
}

}  // namespace octavo::volume
