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

/// The slots of a LIVE scan as a ring: which of its volumes are kept, and which give their slots to
/// newer ones. A volume that a LIVE scan sealed belongs to the ring until something keeps it: a
/// client's mark, a loan, a commit that failed, a move to another tier, the end of the scan.
/// Thread-safe.
class RetentionRing {
 public:
  explicit RetentionRing(VolumeTable& table) : table_(table) {}

  /// Gives up the oldest held volume of `scan` that is not kept. False if there is none.
  bool OverwriteOldest(const std::string& scan);
  /// keep_last: gives up held volumes of `scan` that nobody keeps, but for the newest `count`, and
  /// raw ones likewise.
  void KeepNewest(const std::string& scan, int64_t count);
  /// When the scan ends: volumes that nobody kept stay held like any other.
  void KeepAll(const std::string& scan);

  /// A client's mark, which stays until it is taken back: the ring must not overwrite the volume,
  /// and its time to live ends. ResourceExhausted (HOLD_SLOTS_FULL) if `hold_slots` slots of its
  /// scan are kept already.
  absl::StatusOr<model::VolumeStatus> Mark(const std::string& name, int64_t hold_slots);
  /// Takes the mark back; the ring of a LIVE scan that still runs may overwrite the volume again.
  /// Its time to live begins anew. Aborted (LEASED), FailedPrecondition (EXPORTED) where `asked` is
  /// given.
  absl::StatusOr<model::VolumeStatus> Unmark(const std::string& name,
                                             const ClientVerb* asked = nullptr);
  /// A hold of kind kLoan, of a held volume, for a temporary reader; loans may be nested. With the
  /// end of the last one the ring may overwrite the volume again, unless something else keeps it.
  /// ResourceExhausted (HOLD_SLOTS_FULL) as for Mark.
  absl::StatusOr<VolumeHold> Lend(const std::string& name, int64_t hold_slots);

 private:
  class Loan;
  void TakeBack(const std::string& name);
  bool IsOver(const VolumeEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  /// HOLD_SLOTS_FULL if so many slots of the volume's scan are kept.
  absl::Status CheckHoldSlots(const VolumeEntry& entry, int64_t hold_slots)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  VolumeBytes Overwrite(VolumeEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  VolumeTable& table_;
};

}  // namespace octavo::volume
