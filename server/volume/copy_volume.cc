#include "server/volume/copy_volume.h"

#include "absl/status/status.h"

#include "gpu/base/status.h"
#include "server/memory/stripe_layout.h"

namespace octavo::volume {

absl::StatusOr<model::Bytes> CopyVolumeToHost(Device& device, StreamRef stream,
                                              memory::FramePool& pool, const PinnedVolume& pinned) {
  auto memory = pool.Get(pinned.status.bytes, memory::FramePool::Use::kFrame);
  if (memory == nullptr)
    return absl::ResourceExhaustedError("no page-locked memory left for volume frames");
  if (pinned.spilled != nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(auto cursor, pinned.spilled->Open());
    OCTAVO_RETURN_IF_ERROR(cursor->Read(0, pinned.status.bytes, memory.get()));
    return model::Bytes{.owner = memory, .data = memory.get(), .size = pinned.status.bytes};
  }
  OCTAVO_RETURN_IF_ERROR(memory::CopyVolumeBytes(device, stream, memory.get(), *pinned.slot,
                                                 pinned.status, 0, pinned.status.bytes));
  OCTAVO_RETURN_IF_ERROR(stream.Synchronize());
  return model::Bytes{.owner = memory, .data = memory.get(), .size = pinned.status.bytes};
}

}  // namespace octavo::volume
