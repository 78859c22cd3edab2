#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "gpu/device/stream.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"

namespace octavo::volume {

/// A volume that is being made in the memory of a device.
struct GrowingVolume {
  model::VolumeStatus status;  // as the store has it: ACQUIRING
  std::shared_ptr<const memory::VolumeSlot> slot;
  int device = 0;
};

/// A commit of a volume that is still being made, as the one that makes the volume sees it: the
/// voxels that are made already are written meanwhile (Committer::CommitGrowing, which makes it).
/// The commit may end at any time (a full disk, a client that cancels it), which changes nothing
/// for the volume. The maker calls, from one thread; Held or Failed ends its part. One that is
/// destroyed before has failed.
class GrowingCommit {
 public:
  virtual ~GrowingCommit() = default;
  /// The first `bytes` of the volume, in C order, are enqueued on `stream`, and nothing changes
  /// them any more. Does not wait for them. Errors are those of the device.
  virtual absl::Status Reach(int64_t bytes, StreamRef stream) = 0;
  /// The volume is held. It is COMMITTING when this returns; or still HELD, with the error, if the
  /// commit has ended before; or what a client that was faster has made of it.
  virtual void Held() = 0;
  /// The volume is never held: the commit ends without files. Call once the store has failed the
  /// volume.
  virtual void Failed(const absl::Status& why) = 0;
};

}  // namespace octavo::volume
