#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/volume/volume_mirroring.h"
#include "server/volume/volume_move.h"
#include "server/volume/volume_news.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Begins moves of volumes between tiers, and copies of them in the tier DISK (mirrors). The
/// Spiller makes the copy and finishes the move. To all others, a volume being moved stays what it
/// is. A volume has one move at a time. Thread-safe.
class VolumeTiers {
 public:
  explicit VolumeTiers(VolumeTable& table) : table_(table) {}

  /// A move off the device. FailedPrecondition (VOLUME_STATE, MOVING). `asked`: set if a client
  /// asks; then also PermissionDenied (NOT_OWNER), Aborted (LEASED), FailedPrecondition (EXPORTED).
  /// `tier`: where to, if that is known: a volume that is there already, also one that is being
  /// committed, is not moved, and the move is not under way.
  absl::StatusOr<VolumeMove> BeginSpill(const std::string& name, const ClientVerb* asked = nullptr,
                                        std::optional<model::Tier> tier = std::nullopt);
  /// As BeginSpill, for the oldest held volume of the scan on the device that no other process maps
  /// (the slot of a mapped volume would not become free). NotFound if there is none.
  absl::StatusOr<VolumeMove> BeginSpillOldest(const std::string& scan);
  /// A move back to the device that the volume was on. A volume that is already there is not moved:
  /// the move is not under way, and its hold has a slot. `asked`: set if a client asks; then also
  /// PermissionDenied (NOT_OWNER).
  absl::StatusOr<VolumeMove> BeginRestore(const std::string& name,
                                          const ClientVerb* asked = nullptr);
  /// A copy into another slot, because another process keeps the present one. FailedPrecondition
  /// (VOLUME_STATE, MOVING, SPILLED).
  absl::StatusOr<VolumeMove> BeginRelocate(const std::string& name);

  /// Which volume BeginMirror may take.
  struct MirrorWish {
    int64_t most_bytes = 0;
    double least_held_seconds = 0;      // since its seal
    std::set<std::string> except = {};  // names
  };
  /// A copy in the tier DISK of the oldest volume that has none and may have one. Only a volume
  /// that nothing overwrites may: the ring of a LIVE scan would have to remove the file of each
  /// volume that it overwrites, and waits for no disk. NotFound if there is none.
  absl::StatusOr<VolumeMirroring> BeginMirror(const MirrorWish& wish);
  /// Removes the newest mirror of a volume that is not being moved, to make room for one that is
  /// spilled. False if there is none.
  bool DropNewestMirror();
  /// What all mirrors take of the tier.
  int64_t MirrorBytes();

  /// Brings the files of volumes up to date that were marked, or unmarked, after their file was
  /// written. Writes to the disk, on the calling thread. What fails is tried again by the next
  /// call.
  void NoteMarks();
  /// Tries of NoteMarks that failed.
  int64_t mark_failures() const { return mark_failures_; }

 private:
  /// FailedPrecondition (VOLUME_STATE, MOVING) if no move of the volume may begin.
  static absl::Status CheckMovable(const VolumeEntry& entry);
  /// Marks the entry as moving and returns the move, which holds its bytes. `mirroring`: null, or
  /// gets the gate of a mirroring that the move takes the place of; to be shut after the lock.
  VolumeMove Begin(VolumeEntry& entry, model::Move kind, VolumeNews& news,
                   std::shared_ptr<storage::SpillGate>* mirroring = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  VolumeTable& table_;
  std::atomic<int64_t> mark_failures_{0};
};

}  // namespace octavo::volume
