#pragma once

#include <utility>

#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// A move of a volume to another tier or into another slot, from its begin (VolumeTiers) to its
/// end. It holds the bytes to be copied. Finish ends it, and uses it up: a second end is none. A
/// move that is destroyed before Finish has failed, so no early return and no exception leaves a
/// volume moving. The end takes the store's lock, so every move must end before the store, and none
/// under that lock. Not thread-safe; another thread may take it over.
class VolumeMove {
 public:
  VolumeMove(VolumeMove&& other) noexcept
      : table_(other.table_),
        kind_(std::exchange(other.kind_, model::Move::kNone)),
        hold_(std::move(other.hold_)),
        gate_(std::move(other.gate_)),
        mirror_(std::move(other.mirror_)) {}
  /// The move that was here before fails if it has not ended.
  VolumeMove& operator=(VolumeMove&& other) noexcept;
  ~VolumeMove() { Abandon(); }

  /// False: the volume is where it should be, or the move has ended. Finish does nothing then.
  bool under_way() const { return kind_ != model::Move::kNone; }
  /// The bytes to be copied, and the volume as it was when the move began.
  const VolumeHold& hold() const { return hold_; }
  /// Of a spill: what a file that is written for it passes through. Else null.
  const std::shared_ptr<storage::SpillGate>& gate() const { return gate_; }
  /// The volume's copy on the disk, which a spill to DISK takes instead of making one; null: none.
  const std::shared_ptr<const SpilledVolume>& mirror() const { return mirror_; }

  /// Ends the move and the hold. `made`: the copy; exactly one of its first two members is set. The
  /// volume's bytes are there from now on, and its old memory is released. If `made` is an error,
  /// all stays as it was; the volume's last_error says why a spill failed. If the volume has left
  /// meanwhile, the copy is removed. Returns whether the volume has moved.
  bool Finish(absl::StatusOr<VolumeBytes> made) &&;

 private:
  friend class VolumeTiers;
  /// `hold`: of kind kMemory. Made under the table's lock, when the entry says that it is moving;
  /// kNone: there is nothing to move.
  VolumeMove(VolumeTable* table, model::Move kind, VolumeHold hold,
             std::shared_ptr<storage::SpillGate> gate,
             std::shared_ptr<const SpilledVolume> mirror) noexcept
      : table_(table),
        kind_(kind),
        hold_(std::move(hold)),
        gate_(std::move(gate)),
        mirror_(std::move(mirror)) {}
  /// Describes the new memory, which the entry has from now on. What stays of `before`, which it
  /// had, is taken from it.
  void Exchanged(model::Move kind, VolumeEntry& entry, VolumeBytes* before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_->mutex());
  /// Removes the file that was written for a move that has failed, should it have its name already.
  void ShutGate();
  /// The end of a move without Finish.
  void Abandon() noexcept;

  VolumeTable* table_;
  model::Move kind_;  // kNone: nothing is to be ended
  VolumeHold hold_;
  std::shared_ptr<storage::SpillGate> gate_;
  std::shared_ptr<const SpilledVolume> mirror_;
};

}  // namespace octavo::volume
