#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/engine/ledger.h"
#include "server/engine/spilled_volume.h"
#include "server/engine/status_types.h"
#include "server/engine/volume_slot.h"

namespace octavo::engine {

/// OK if a volume may go from one state to the other; FailedPrecondition that names both otherwise.
///   acquiring → held | failed;  held → committing | discarded;  committing → committed | held
absl::Status CheckTransition(const std::string& volume, VolumeState from, VolumeState to);

/// A volume's memory while somebody reads it, and what was known of it then. Exactly one of slot and spilled is set.
struct PinnedVolume {
  VolumeStatus status;
  std::shared_ptr<const VolumeSlot> slot;
  int device = 0;
  std::shared_ptr<const SpilledVolume> spilled;  // the bytes are not on the device
};

/// Which volumes a list is to have.
struct VolumeQuery {
  std::string scan;        // empty = of all scans
  bool in_memory = false;  // only what is acquired, held or being committed
};

/// All volumes, in every state; those that have left memory stay listed for ten minutes, the last 10000. Thread-safe; short
/// critical sections, no device calls inside (memory is let go of outside the lock).
class VolumeStore {
 public:
  /// `on_change` is called after each change of state, from the thread that made it, without locks.
  VolumeStore(Ledger* ledger, const Clock* clock, std::function<void(const VolumeStatus&)> on_change)
      : ledger_(ledger), clock_(clock), on_change_(std::move(on_change)) {}
  /// Which volumes other processes map, for BeginSpillOldest. Set once, before the first volume; called under the store's lock.
  void SetMapped(std::function<std::set<std::string>()> mapped) { mapped_ = std::move(mapped); }

  /// A volume that begins to be acquired into `slot`. `status` carries name, scan, index, geometry.
  void Add(VolumeStatus status, std::shared_ptr<VolumeSlot> slot, int device);
  /// acquiring → held. `final_status` carries times, completeness, digest. `kept`: counts as held by the client (not LIVE).
  void Seal(const VolumeStatus& final_status, bool kept);
  /// acquiring → failed; memory is let go.
  void Fail(const std::string& name, const std::string& reason);

  absl::StatusOr<VolumeStatus> Get(const std::string& name);
  std::vector<VolumeStatus> List(const VolumeQuery& query = {});  // oldest first
  /// Keeps the bytes readable on the device while the result lives. Held and committing volumes only. FailedPrecondition (SPILLED) if
  /// they are in another tier: whoever works on the device restores first (Spiller::RestoreNow); (STRIPED) if they lie on several devices.
  absl::StatusOr<PinnedVolume> Pin(const std::string& name);
  /// The same, wherever the bytes are: for those who copy them to the host anyway (stripes.h).
  absl::StatusOr<PinnedVolume> PinAnyTier(const std::string& name);
  /// The same with `cursor` (null on the device) open for what is in another tier: a move that ends in this moment removes a file that is
  /// not open yet, and then the bytes are elsewhere.
  absl::StatusOr<PinnedVolume> OpenAnyTier(const std::string& name, std::unique_ptr<storage::SpillCursor>* cursor);
  /// Marks a held volume: LIVE must not overwrite it, its time to live ends. ResourceExhausted (HOLD_SLOTS_FULL) if `limit` slots of its
  /// scan are kept already.
  absl::StatusOr<VolumeStatus> Keep(const std::string& name, int64_t limit);
  /// Takes the mark back; `ring`: the scan is a LIVE one that still runs, and may overwrite it again. Time to live begins anew.
  absl::StatusOr<VolumeStatus> Unmark(const std::string& name, bool ring);
  /// LIVE: as Keep without the mark, for who looks at a volume for a while. Several may.
  absl::Status Lend(const std::string& name, int64_t limit);
  /// Whether it is kept only because it is lent.
  bool IsLent(const std::string& name);
  /// The end of one Lend; with the last one the ring may overwrite it again, unless it was kept otherwise. `ring`: as for Unmark.
  void TakeBack(const std::string& name, bool ring);
  absl::StatusOr<VolumeStatus> Discard(const std::string& name, const std::string& reason);
  absl::StatusOr<PinnedVolume> BeginCommit(const std::string& name);
  /// committing → committed (memory is let go) or back to held with the error.
  void EndCommit(const std::string& name, const absl::StatusOr<storage::CommitOutcome>& outcome);
  /// LIVE: gives up the oldest held volume of `scan` that is not kept. False if there is none.
  bool OverwriteOldest(const std::string& scan);
  /// LIVE with keep_last: gives up held volumes of `scan` that nobody keeps, but for the newest `count`.
  void KeepNewest(const std::string& scan, int64_t count);
  /// LIVE, when the scan ends: volumes that nobody kept stay held like any other.
  void KeepAll(const std::string& scan);

  // -- tiers. A volume that is being moved stays what it is to everybody else; one move at a time.
  /// The volume's bytes for a move off the device. FailedPrecondition (VOLUME_STATE, MOVING).
  absl::StatusOr<PinnedVolume> BeginSpill(const std::string& name);
  /// As BeginSpill, for the oldest held volume of the scan that is on the device and that no other process maps (its slot would not become
  /// free). NotFound if there is none.
  absl::StatusOr<PinnedVolume> BeginSpillOldest(const std::string& scan);
  /// The bytes are in `spilled` now, the slot is let go; or the move failed and all stays. Bytes of a volume that went meanwhile are
  /// removed.
  void EndSpill(const std::string& name, absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled);
  absl::StatusOr<PinnedVolume> BeginRestore(const std::string& name);
  void EndRestore(const std::string& name, absl::StatusOr<std::shared_ptr<VolumeSlot>> slot, int device);
  /// The bytes are to be copied into another slot, because somebody keeps this one. FailedPrecondition (VOLUME_STATE, MOVING, SPILLED).
  absl::StatusOr<PinnedVolume> BeginRelocate(const std::string& name);
  /// They are there now, and the old slot is let go; or it failed and all stays. False if it failed or the volume went meanwhile.
  bool EndRelocate(const std::string& name, absl::StatusOr<std::shared_ptr<VolumeSlot>> slot);
  /// A volume that an earlier process left behind: held.
  void AddRecovered(VolumeStatus status, std::shared_ptr<const SpilledVolume> spilled);

  /// A volume that was made into another tier than the device: held, kept.
  void AddStored(VolumeStatus status, std::shared_ptr<const SpilledVolume> spilled);

  // -- what time and clients' ends do to volumes
  struct Due {
    std::vector<VolumeStatus> warned;   // will expire within their warning time; told once
    std::vector<VolumeStatus> expired;  // discarded
    std::vector<VolumeStatus> orphans;  // held volumes of sessions that are gone; told once
  };
  /// `gone`: whether a session has expired.
  Due Tick(const std::function<bool(const std::string& session)>& gone);
  /// The session is alive again.
  void Adopt(const std::string& session);

  struct Counts {
    std::map<std::string, int64_t> by_state;  // in memory now
    std::map<std::string, int64_t> by_tier;   // held ones
    std::map<std::string, int64_t> finished;  // committed, discarded, failed, overwritten, expired: since start
    double oldest_held_seconds = 0;
    int64_t missing_ascans = 0;
  };
  Counts Count();
  struct ScanCounts {
    int64_t held = 0, committed = 0, discarded = 0, overwritten = 0, commit_failures = 0, spilled = 0, expired = 0, kept_slots = 0;
    std::vector<std::string> in_memory;  // oldest first
  };
  ScanCounts CountOf(const std::string& scan);
  /// The scans of all volumes in memory.
  std::set<std::string> ScansInMemory();
  /// Volumes of the scan that are held on the device and that other processes map.
  int64_t MappedOf(const std::string& scan);
  /// The scan is no longer listed: its totals go.
  void ForgetScan(const std::string& scan);

 private:
  struct Record {
    uint64_t number = 0;  // in the order they came
    VolumeStatus status;
    std::shared_ptr<VolumeSlot> slot;
    int device = 0;
    int64_t sealed_ns = 0, gone_ns = 0;
    int64_t living_ns = 0;  // since when the time to live counts
    bool warned = false;
    std::shared_ptr<const SpilledVolume> spilled;
    int loans = 0;
    bool lent = false;      // kept because of them
    bool restored = false;  // into memory of its own: none of its scan's slots
    /// Whether it takes one of its scan's slots.
    bool InSlot() const { return !restored && status.derived_from.empty() && status.tier == Tier::kDevice; }
  };
  /// What a volume leaves behind, to be let go of outside the lock.
  struct Memory {
    std::shared_ptr<VolumeSlot> slot;
    std::shared_ptr<const SpilledVolume> spilled;
    void LetGo();
  };
  using Records = std::list<Record>;  // oldest first; of those that left memory, the one that left first
  absl::StatusOr<Records::iterator> Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  VolumeStatus StatusOf(const Record& record) const;
  static PinnedVolume PinOf(const Record& record, VolumeStatus status);
  absl::StatusOr<PinnedVolume> BeginSpillOf(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The end of what a Begin… began: `made` takes the place of the volume's memory, which is let go. An empty one: it failed. `ended`
  /// completes the record of a volume that is still there. Its status if it has moved; memory made for one that went meanwhile is let go.
  std::optional<VolumeStatus> EndMove(const std::string& name, Memory made, const std::function<void(Record&)>& ended);
  /// HOLD_SLOTS_FULL if `limit` slots of the record's scan are kept.
  absl::Status CheckHoldSlots(const Record& record, int64_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The record leaves memory; what is returned must be let go of outside the lock.
  Memory Leave(Record& record, VolumeState to, const std::string& reason, const char* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Purge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Where what becomes of the record is counted for its scan. Of jobs, and of what an earlier process left, no totals are kept: nobody
  /// would ever forget them.
  ScanCounts& TotalsOf(const Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Ledger* const ledger_;
  const Clock* const clock_;
  const std::function<void(const VolumeStatus&)> on_change_;
  Mutex mutex_;
  // Those in memory, and apart from them (so that nothing on the way of a volume walks through them) those that left it.
  Records records_ ABSL_GUARDED_BY(mutex_), gone_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Records::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::map<uint64_t, Records::iterator>> of_scan_ ABSL_GUARDED_BY(mutex_);  // those in memory, by scan and number
  std::map<std::string, int64_t> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ScanCounts> scans_ ABSL_GUARDED_BY(mutex_);  // running totals; in_memory and held unused
  ScanCounts others_ ABSL_GUARDED_BY(mutex_);                        // of all that is of no scan
  int64_t missing_ascans_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<std::set<std::string>()> mapped_ = [] { return std::set<std::string>(); };
};

}  // namespace octavo::engine
