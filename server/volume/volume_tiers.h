#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/volume/volume_move.h"
#include "server/volume/volume_news.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Begins moves of volumes between tiers. The Spiller makes the copy and finishes the move. To all
/// others, a volume being moved stays what it is. A volume has one move at a time. Thread-safe.
class VolumeTiers {
 public:
  explicit VolumeTiers(VolumeTable& table) : table_(table) {}

  /// A move off the device. FailedPrecondition (VOLUME_STATE, MOVING). `asked`: set if a client
  /// asks; then also PermissionDenied (NOT_OWNER), Aborted (LEASED), FailedPrecondition (EXPORTED).
  absl::StatusOr<VolumeMove> BeginSpill(const std::string& name, const ClientVerb* asked = nullptr);
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

 private:
  /// FailedPrecondition (VOLUME_STATE, MOVING) if no move of the volume may begin.
  static absl::Status CheckMovable(const VolumeEntry& entry);
  /// Marks the entry as moving and returns the move, which holds its bytes.
  VolumeMove Begin(VolumeEntry& entry, model::Move kind, VolumeNews& news)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  VolumeTable& table_;
};

}  // namespace octavo::volume
