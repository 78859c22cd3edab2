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

/// Begins and ends moves of volumes between tiers; the Spiller makes the copy in between. To all
/// others, a volume being moved stays what it is. A volume has one move at a time. Each Begin…
/// returns the bytes to copy; its End… must follow whether the copy succeeds or not. Thread-safe.
class VolumeTiers {
 public:
  explicit VolumeTiers(VolumeTable& table) : table_(table) {}

  /// A move off the device. FailedPrecondition (VOLUME_STATE, MOVING). `asked`: set if a client
  /// asks; then also Aborted (LEASED), FailedPrecondition (EXPORTED).
  absl::StatusOr<VolumeHold> BeginSpill(const std::string& name, const ClientVerb* asked = nullptr);
  /// As BeginSpill, for the oldest held volume of the scan on the device that no other process maps
  /// (the slot of a mapped volume would not become free). NotFound if there is none.
  absl::StatusOr<VolumeHold> BeginSpillOldest(const std::string& scan);
  /// Ends the move: the bytes are in `spilled` now and the slot is released. If the move failed,
  /// all stays as it was. If the volume went meanwhile, removes the copied bytes.
  void EndSpill(const std::string& name,
                absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled);
  /// Begins a move back to the device. A volume that is already there is not moved: the returned
  /// hold has a slot, and no End… follows.
  absl::StatusOr<VolumeHold> BeginRestore(const std::string& name);
  void EndRestore(const std::string& name, absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot,
                  int device);
  /// Begins a copy into another slot, because another process keeps the present one.
  /// FailedPrecondition (VOLUME_STATE, MOVING, SPILLED).
  absl::StatusOr<VolumeHold> BeginRelocate(const std::string& name);
  /// Ends the copy: the bytes are in the new slot and the old one is released. If the copy failed,
  /// all stays as it was. False if it failed or the volume went meanwhile.
  bool EndRelocate(const std::string& name,
                   absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot);

 private:
  /// FailedPrecondition (VOLUME_STATE, MOVING) if no move of the volume may begin.
  static absl::Status CheckMovable(const VolumeEntry& entry);
  /// Marks the entry as moving and returns a hold of its bytes.
  VolumeHold Begin(VolumeEntry& entry, model::Move move)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  /// Completes a move: replaces the volume's memory with `made` and releases the old memory. An
  /// empty `made` means that the move failed. `ended` completes the entry if the volume is still
  /// there. Returns its status if it has moved. If the volume went meanwhile, releases the new
  /// memory.
  std::optional<model::VolumeStatus> End(const std::string& name, VolumeBytes made,
                                         const std::function<void(VolumeEntry&)>& ended);

  VolumeTable& table_;
};

}  // namespace octavo::volume
