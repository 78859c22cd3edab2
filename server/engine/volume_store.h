#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/engine/ledger.h"
#include "server/engine/status_types.h"
#include "server/engine/volume_slot.h"

namespace octavo::engine {

/// OK if a volume may go from one state to the other; FailedPrecondition that names both otherwise.
///   acquiring → held | failed;  held → committing | discarded;  committing → committed | held
absl::Status CheckTransition(const std::string& volume, VolumeState from, VolumeState to);

/// A volume's memory while somebody reads it, and what was known of it then.
struct PinnedVolume {
  VolumeStatus status;
  std::shared_ptr<const VolumeSlot> slot;
  int device = 0;
};

/// All volumes, in every state; those that have left device memory stay listed for ten minutes. Thread-safe; short
/// critical sections, no device calls inside (memory is let go of outside the lock).
class VolumeStore {
 public:
  /// `on_change` is called after each change of state, from the thread that made it, without locks.
  VolumeStore(Ledger* ledger, const Clock* clock, std::function<void(const VolumeStatus&)> on_change)
      : ledger_(ledger), clock_(clock), on_change_(std::move(on_change)) {}

  /// A volume that begins to be acquired into `slot`. `status` carries name, scan, index, geometry.
  void Add(VolumeStatus status, std::shared_ptr<VolumeSlot> slot, int device);
  /// acquiring → held. `final_status` carries times, completeness, digest. `kept`: counts as held by the client (not LIVE).
  void Seal(const VolumeStatus& final_status, bool kept);
  /// acquiring → failed; memory is let go.
  void Fail(const std::string& name, const std::string& reason);

  absl::StatusOr<VolumeStatus> Get(const std::string& name);
  std::vector<VolumeStatus> List();  // oldest first
  /// Keeps the bytes readable while the result lives. Held and committing volumes only.
  absl::StatusOr<PinnedVolume> Pin(const std::string& name);
  /// LIVE: takes a held volume out of the ring. ResourceExhausted (HOLD_SLOTS_FULL) if `limit` of its scan are kept already.
  absl::StatusOr<VolumeStatus> Keep(const std::string& name, int64_t limit);
  absl::StatusOr<VolumeStatus> Discard(const std::string& name, const std::string& reason);
  absl::StatusOr<PinnedVolume> BeginCommit(const std::string& name);
  /// committing → committed (memory is let go) or back to held with the error.
  void EndCommit(const std::string& name, const absl::StatusOr<storage::CommitOutcome>& outcome);
  /// LIVE: gives up the oldest held volume of `scan` that is not kept. False if there is none.
  bool OverwriteOldest(const std::string& scan);
  /// LIVE, when the scan ends: volumes that nobody kept stay held like any other.
  void KeepAll(const std::string& scan);

  struct Counts {
    std::map<std::string, int64_t> by_state;  // in memory now
    std::map<std::string, int64_t> finished;  // committed, discarded, failed, overwritten: since start
    double oldest_held_seconds = 0;
    int64_t missing_ascans = 0;
  };
  Counts Count();
  struct ScanCounts {
    int64_t held = 0, committed = 0, discarded = 0, overwritten = 0, commit_failures = 0;
    std::vector<std::string> in_memory;  // oldest first
  };
  ScanCounts CountOf(const std::string& scan);

 private:
  struct Record {
    VolumeStatus status;
    std::shared_ptr<VolumeSlot> slot;
    int device = 0;
    int64_t sealed_ns = 0, gone_ns = 0;
  };
  using Records = std::list<Record>;  // oldest first
  absl::StatusOr<Records::iterator> Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  VolumeStatus StatusOf(const Record& record) const;
  /// The record leaves device memory; the returned slot must be dropped outside the lock.
  std::shared_ptr<VolumeSlot> Leave(Record& record, VolumeState to, const std::string& reason, const char* finished)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Purge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Ledger* const ledger_;
  const Clock* const clock_;
  const std::function<void(const VolumeStatus&)> on_change_;
  Mutex mutex_;
  Records records_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Records::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ScanCounts> scans_ ABSL_GUARDED_BY(mutex_);  // running totals; in_memory and held unused
  int64_t missing_ascans_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace octavo::engine
