#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Moves of volumes between tiers, begun and ended; the copy in between is the Spiller's. A volume
/// that is being moved stays what it is to everybody else; one move at a time. Each Begin… returns
/// the bytes to copy and is followed by its End…, whatever becomes of the copy. Thread-safe.
class VolumeTiers {
 public:
  explicit VolumeTiers(VolumeTable& table) : table_(table) {}

  /// A move off the device. FailedPrecondition (VOLUME_STATE, MOVING); `asked`: by a client,
  /// Aborted (LEASED), FailedPrecondition (EXPORTED).
  absl::StatusOr<VolumeHold> BeginSpill(const std::string& name, const ClientVerb* asked = nullptr);
  /// As BeginSpill, for the oldest held volume of the scan that is on the device and that no other
  /// process maps (its slot would not become free). NotFound if there is none.
  absl::StatusOr<VolumeHold> BeginSpillOldest(const std::string& scan);
  /// The bytes are in `spilled` now, the slot is let go; or the move failed and all stays. Bytes of
  /// a volume that went meanwhile are removed.
  void EndSpill(const std::string& name,
                absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled);
  /// A move back to the device. A volume that is there already is returned and not moved: its hold
  /// has a slot, and no End… follows.
  absl::StatusOr<VolumeHold> BeginRestore(const std::string& name);
  void EndRestore(const std::string& name, absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot,
                  int device);
  /// The bytes are to be copied into another slot, because somebody keeps this one.
  /// FailedPrecondition (VOLUME_STATE, MOVING, SPILLED).
  absl::StatusOr<VolumeHold> BeginRelocate(const std::string& name);
  /// They are there now, and the old slot is let go; or it failed and all stays. False if it failed
  /// or the volume went meanwhile.
  bool EndRelocate(const std::string& name,
                   absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot);

 private:
  /// FailedPrecondition (VOLUME_STATE, MOVING) if no move of it may begin.
  static absl::Status CheckMovable(const VolumeEntry& entry);
  /// The bytes, with which the move begins.
  VolumeHold Begin(VolumeEntry& entry, model::Move move)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  /// Completes what a Begin… began: replaces the volume's memory with `made` and lets go of the old
  /// memory. An empty `made`: the move failed. `ended` completes the entry of a volume that is
  /// still there. Returns its status if it has moved; memory made for one that went meanwhile is
  /// let go.
  std::optional<model::VolumeStatus> End(const std::string& name, VolumeBytes made,
                                         const std::function<void(VolumeEntry&)>& ended);

  VolumeTable& table_;
};

}  // namespace octavo::volume
