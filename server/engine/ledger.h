#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/engine/status_types.h"

namespace octavo::engine {

/// Who is charged what on which device. Plain bookkeeping: no device calls. Invariant per device:
/// reserved + held <= budget. Thread-safe.
class Ledger {
 public:
  using ChargeId = int64_t;

  explicit Ledger(std::vector<int64_t> budgets) : budgets_(std::move(budgets)) {}

  /// What reserving `needs` on `device` would answer now. Changes nothing.
  AdmissionReport Plan(int device, const std::vector<AdmissionReport::Item>& needs) const;

  /// Reserves all of `needs` or nothing. Returns one charge per piece, in the order of needs (item.count pieces of
  /// item.bytes / item.count each). ResourceExhausted (DEVICE_FULL, or EXCEEDS_BUDGET when it can never fit) with wanted,
  /// free and budget; `report` (may be null) gets the whole account.
  absl::StatusOr<std::vector<ChargeId>> Reserve(int device, const std::string& owner, const std::string& title,
                                                const std::vector<AdmissionReport::Item>& needs, AdmissionReport* report);

  /// The charge now counts as held, under the name of the volume in it.
  void Hold(ChargeId id, const std::string& volume);
  /// The charge counts as reserved again, under its owner.
  void Unhold(ChargeId id);
  void Release(ChargeId id);

  struct Use {
    int64_t budget = 0, reserved = 0, held = 0;
    int64_t free() const { return budget - reserved - held; }
  };
  Use UseOf(int device) const;
  int devices() const { return static_cast<int>(budgets_.size()); }

 private:
  struct Charge {
    int device = 0;
    std::string owner, title, held_by;  // held_by: volume name; empty = reserved
    int64_t bytes = 0;
  };
  Use UseLocked(int device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  AdmissionReport PlanLocked(int device, const std::vector<AdmissionReport::Item>& needs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<int64_t> budgets_;
  mutable Mutex mutex_;
  ChargeId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<ChargeId, Charge> charges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
