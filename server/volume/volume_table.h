#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/memory/ledger.h"
#include "server/model/status_types.h"
#include "server/security/principal.h"
#include "server/session/lease.h"
#include "server/volume/volume_entry.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_mappings.h"
#include "server/volume/volume_observer.h"

namespace octavo::volume {

/// A verb that other clients' leases and exports may block: a client's or an orphan policy's verb.
/// A null pointer means that the server acts for itself.
struct ClientVerb {
  std::string lease_token;      // of the caller's own lease, which does not block it; empty = none
  bool detach_exports = false;  // proceed although other processes map it
  bool of_orphans = false;      // only while the session is gone; else FailedPrecondition (ADOPTED)
  security::Principal caller = {};  // who asks; policies (of_orphans) need no right
};

/// Whether the volume may be changed for whoever asks: PermissionDenied (NOT_OWNER).
absl::Status CheckOwner(const model::VolumeDescription& volume, const ClientVerb* asked);

/// Protections of volumes in addition to their own state. Called under the table's lock.
struct VolumeProtections {
  session::LeaseTable* leases = nullptr;  // null: no leases
  VolumeMappings* mappings = nullptr;     // null: no other process maps anything
};

/// What became of a volume of an earlier process: the error for whoever asks for it. OK: nothing is
/// known of it. Called under the table's lock; takes none.
using EarlierVolume = std::function<absl::Status(const std::string&)>;

/// The entries of all volumes under one lock, the checks of their protections, and the observers of
/// their changes. The store and its parts (retention_ring.h, volume_tiers.h, volume_expiry.h) check
/// and act through this table: a verb takes the lock, finds the entry, checks it, changes it,
/// releases the lock, and then calls LetGo and Tell.
class VolumeTable {
 public:
  using Entries = std::list<VolumeEntry>;
  using ByNumber = std::map<uint64_t, VolumeEntry*>;

  VolumeTable(memory::Ledger* ledger, const Clock* clock) : ledger_(ledger), clock_(clock) {}
  void AddObserver(VolumeObserver* observer) { observers_.push_back(observer); }
  void SetProtections(const VolumeProtections& protections) { protections_ = protections; }
  /// Set once, before the first volume.
  void SetEarlier(EarlierVolume earlier) { earlier_ = std::move(earlier); }

  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  memory::Ledger& ledger() const { return *ledger_; }
  TimePoint Now() const { return clock_->Now(); }
  int64_t NowNs() const { return Now().monotonic_ns; }

  // -- entries
  VolumeEntry& Insert(VolumeEntry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// NotFound (NO_VOLUME). Of a volume of an earlier process NotFound (VOLUME_GONE) or DataLoss
  /// (LOST), as far as it is known.
  absl::StatusOr<VolumeEntry*> Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The volumes in memory, oldest first.
  Entries& InMemory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return entries_; }
  const std::map<std::string, ByNumber>& InMemoryByScan() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return of_scan_;
  }
  /// The volumes of a scan in memory, oldest first. Leave takes a volume out of it.
  const ByNumber& InMemoryOf(const std::string& scan) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The volumes in memory of a client's session, oldest first.
  const ByNumber& InMemoryOfSession(const std::string& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// All volumes, in memory or not, oldest first.
  const ByNumber& All() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return by_number_; }
  /// Forgets the volumes that left memory too long ago.
  void Purge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  model::VolumeStatus StatusOf(const VolumeEntry& entry) const {
    return volume::StatusOf(entry, NowNs());
  }
  /// The status after a change, which counts as one: for Tell.
  model::VolumeStatus Changed(VolumeEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++entry.revision;
    return StatusOf(entry);
  }
  bool IsInMemory(const std::string& name) noexcept ABSL_LOCKS_EXCLUDED(mutex_);
  /// A hold of kind kMemory.
  VolumeHold HoldMemory(const VolumeEntry& entry) const;

  // -- checks
  /// `asked`: null if the server acts for itself. Aborted (LEASED), FailedPrecondition (ADOPTED).
  absl::Status CheckLeases(const VolumeEntry& entry, const ClientVerb* asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// FailedPrecondition (EXPORTED).
  absl::Status CheckExports(const VolumeEntry& entry, const ClientVerb* asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  session::LeaseTable* leases() const { return protections_.leases; }
  /// Whether held volumes are mirrored: a restored volume keeps its file as its mirror then. Set
  /// once, before the first volume.
  void SetMirrors(bool on) { mirrors_ = on; }
  bool mirrors() const { return mirrors_; }
  /// The volumes that other processes map.
  std::set<std::string> Mapped() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- the end of a volume
  /// Takes the volume out of memory: sets its last state and why, ends its leases, and counts it
  /// under `finished`. The caller passes the result to LetGo.
  VolumeBytes Leave(VolumeEntry& entry, model::VolumeState to, Reason code,
                    const std::string& reason, const char* finished)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // after the lock. Callees of these two may throw; the change stands regardless. Once LetGo has
  // returned, no later process finds the volume: files of it are removed, and one that is being
  // written gets no name. Verbs answer after it.
  void LetGo(const std::string& name, VolumeBytes bytes) noexcept ABSL_LOCKS_EXCLUDED(mutex_);
  void Tell(const model::VolumeStatus& status) noexcept ABSL_LOCKS_EXCLUDED(mutex_);
  /// A change of neither state nor tier (volume_news.h).
  void TellDetails(const model::VolumeStatus& status) noexcept ABSL_LOCKS_EXCLUDED(mutex_);

  // -- totals
  struct ScanTotals {
    int64_t committed = 0, discarded = 0, overwritten = 0, commit_failures = 0, expired = 0;
    bool ring_over = false;  // a LIVE scan has ended and overwrites nothing any more
  };
  struct Totals {
    std::map<std::string, int64_t> finished;  // by outcome, since the start
    std::map<std::string, ScanTotals> scans;
    int64_t missing_ascans = 0;
  };
  Totals& totals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return totals_; }
  /// The totals that count this volume for its scan. Volumes of jobs, and those left by an earlier
  /// process, share one entry, because nothing would ever forget separate ones.
  ScanTotals& TotalsOf(const VolumeEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  using OnChange = void (VolumeObserver::*)(const model::VolumeStatus&);
  void TellAll(OnChange what, const model::VolumeStatus& status) noexcept;

  memory::Ledger* const ledger_;
  const Clock* const clock_;
  std::vector<VolumeObserver*> observers_;  // in the order in which they are called
  VolumeProtections protections_;
  EarlierVolume earlier_;
  bool mirrors_ = false;
  Mutex mutex_;
  // Volumes in memory, and separately the volumes that have left it, so that no verb iterates over
  // those.
  Entries entries_ ABSL_GUARDED_BY(mutex_), gone_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Entries::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
  ByNumber by_number_ ABSL_GUARDED_BY(mutex_);
  // Those in memory.
  std::map<std::string, ByNumber> of_scan_ ABSL_GUARDED_BY(mutex_), of_session_
      ABSL_GUARDED_BY(mutex_);
  Totals totals_ ABSL_GUARDED_BY(mutex_);
  ScanTotals others_ ABSL_GUARDED_BY(mutex_);  // volumes without a scan
};

}  // namespace octavo::volume
