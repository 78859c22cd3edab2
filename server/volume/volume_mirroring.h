#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "server/storage/spill/spill_folder.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// The making of a copy of a held volume in the tier DISK, its mirror, from its begin
/// (VolumeTiers::BeginMirror) to its end. Nobody else is refused anything meanwhile: the volume may
/// be read, moved, committed and discarded. What ends the volume, or spills it, takes the mirroring
/// from it: gate() is shut, and the copy is no mirror any more. Finish ends the mirroring, and uses
/// it up; one that is destroyed before has failed. The end takes the store's lock, so every
/// mirroring must end before the store, and none under that lock. Not thread-safe.
class VolumeMirroring {
 public:
  VolumeMirroring(VolumeMirroring&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)),
        hold_(std::move(other.hold_)),
        gate_(std::move(other.gate_)) {}
  VolumeMirroring& operator=(VolumeMirroring&&) = delete;
  ~VolumeMirroring();

  /// The bytes to be copied, and the volume as it was when the mirroring began.
  const VolumeHold& hold() const { return hold_; }
  /// The copy has all bytes: their memory need not wait for the disk.
  void ReleaseBytes() { hold_.Release(); }
  /// What the file passes through. Shut: nobody wants the copy any more.
  const std::shared_ptr<storage::SpillGate>& gate() const { return gate_; }

  /// Ends the mirroring and the hold: `made` is the volume's mirror from now on. If it is an error,
  /// nothing changes; one that says that the bytes are not what was sealed (DIGEST) keeps the
  /// volume from being mirrored again. Returns whether the volume has its mirror. A copy that
  /// nobody wants is removed.
  bool Finish(absl::StatusOr<std::shared_ptr<const SpilledVolume>> made) &&;

 private:
  friend class VolumeTiers;
  /// `hold`: of kind kMemory. Made under the table's lock, when the entry has the gate.
  VolumeMirroring(VolumeTable* table, VolumeHold hold,
                  std::shared_ptr<storage::SpillGate> gate) noexcept
      : table_(table), hold_(std::move(hold)), gate_(std::move(gate)) {}

  VolumeTable* table_;  // null: it has ended
  VolumeHold hold_;
  std::shared_ptr<storage::SpillGate> gate_;
};

}  // namespace octavo::volume
