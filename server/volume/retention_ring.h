#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/status_types.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_table.h"

namespace octavo::volume {

/// Treats the slots of a LIVE scan as a ring: decides which volumes are kept and which give their
/// slots to newer ones. A volume sealed by a LIVE scan belongs to the ring until one of these keeps
/// it: a client's mark, a loan, a commit that failed, a move to another tier, the end of the scan.
/// Thread-safe.
class RetentionRing {
 public:
  explicit RetentionRing(VolumeTable& table) : table_(table) {}

  /// Gives up the oldest held volume of `scan` that is not kept. False if there is none.
  bool OverwriteOldest(const std::string& scan);
  /// keep_last: gives up the held volumes of `scan` that nothing keeps, except the newest `count`.
  /// Applies the same rule to raw volumes.
  void KeepNewest(const std::string& scan, int64_t count);
  /// Call when the scan ends: volumes that nothing kept stay held like any other.
  void KeepAll(const std::string& scan);

  /// Sets a client's mark, which stays until Unmark. The ring must not overwrite a marked volume,
  /// and its time to live no longer counts. ResourceExhausted (HOLD_SLOTS_FULL) if `hold_slots`
  /// slots of its scan are kept already; PermissionDenied (NOT_OWNER) where `asked` is given.
  absl::StatusOr<model::VolumeStatus> Mark(const std::string& name, int64_t hold_slots,
                                           const ClientVerb* asked = nullptr);
  /// Removes the mark. The ring of a LIVE scan that is still running may overwrite the volume
  /// again. Its time to live begins anew. Where `asked` is given: PermissionDenied (NOT_OWNER), and
  /// if the release `endangers` the volume, Aborted (LEASED), FailedPrecondition (EXPORTED).
  absl::StatusOr<model::VolumeStatus> Unmark(const std::string& name,
                                             const ClientVerb* asked = nullptr,
                                             bool endangers = true);
  /// A hold of kind kLoan, of a held volume, for a temporary reader; loans may be nested. When the
  /// last loan ends, the ring may overwrite the volume again, unless something else keeps it.
  /// ResourceExhausted (HOLD_SLOTS_FULL) as for Mark.
  absl::StatusOr<VolumeHold> Lend(const std::string& name, int64_t hold_slots);

 private:
  class Loan;
  void TakeBack(const std::string& name);
  bool IsOver(const VolumeEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  /// HOLD_SLOTS_FULL if `hold_slots` slots of the volume's scan are already kept.
  absl::Status CheckHoldSlots(const VolumeEntry& entry, int64_t hold_slots)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  VolumeBytes Overwrite(VolumeEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  VolumeTable& table_;
};

}  // namespace octavo::volume
