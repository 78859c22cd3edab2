#pragma once

// Verbs and what protects a volume from them. Each cell is checked, and the verb done, under the
// one lock of the VolumeStore, so that of two that exclude each other one succeeds and the other
// one's error says who or what was first (reason in capitals).
//
//                         somebody's   export (maps mark, kept, being      COMMITTING   reads and
//                         lease (1)    or ticket)   lent        moved                   commits
//   AcquireLease          goes with it -            -           -          VOLUME_STATE -
//   DiscardVolume         LEASED       EXPORTED (2) -           - (3)      VOLUME_STATE - (4)
//   CommitVolume          LEASED       - (5)        -           - (3)      VOLUME_STATE - (4)
//   SpillVolume           LEASED       EXPORTED     -           MOVING     -            - (4)
//   RestoreVolume         -            -            -           MOVING     -            - (4)
//   HoldVolume            -            -            -           -          -            -
//   HoldVolume release,   LEASED       EXPORTED     lent: stays -          - (9)        -
//     of a LIVE scan                                   lent (6)
//   Export                -            -            needs one   MOVING (7) -            -
//   end of ttl_seconds    waits        - (5)        mark: never waits      waits        - (4)
//   orphan policy         waits        - (5)        -           waits      waits        - (4)
//   overwrite, keep_last  - (8)        needs kept   never       waits      never        - (4)
//   AUTO_COMMIT, AUTO_DISCARD, on_full = SPILL_…
//                         as the scan's client chose, whoever has a lease (8); what is mapped
//                         is not spilled
//
//   (1) But for the caller's own, whose token comes with the call. (2) Unless detach_exports. (3)
//   The move finds that the volume has left, or is elsewhere when the commit is through. (4) They
//   keep the memory (PinnedVolume) until they are through, and nobody changes it. (5) The memory is
//   detached until it is given back. (6) Until it is given back. (7) Off the device only. (8) The
//   engine waits for no client. (9) A commit that fails keeps it all the same.
//
// When a volume leaves memory its leases end with it (LEASE_LOST), under the same lock. A session
// that ends takes its leases with it, which protects nothing any more; one that comes back
// (KeepAlive) before its orphans were dealt with has them again.
//
// Order of locks: BufferStore turn, BufferStore, VolumeStore, then one of ExportStore, LeaseTable
// (then ClientSessions), Ledger. Nobody is called back under any of them.

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
#include "server/memory/ledger.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/session/lease.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_mappings.h"
#include "server/volume/volume_observer.h"

namespace octavo::volume {

/// OK if a volume may go from one state to the other; FailedPrecondition that names both otherwise.
///   acquiring → held | failed;  held → committing | discarded;  committing → committed | held
absl::Status CheckTransition(const std::string& volume, model::VolumeState from,
                             model::VolumeState to);

/// A volume's memory while somebody reads it, and what was known of it then. Exactly one of slot
/// and spilled is set.
struct PinnedVolume {
  model::VolumeStatus status;
  std::shared_ptr<const memory::VolumeSlot> slot;
  int device = 0;
  std::shared_ptr<const SpilledVolume> spilled;  // the bytes are not on the device
};

/// A verb that leases and exports of others may stand in the way of: a client's, or an orphan
/// policy's. Where there is none of these the server acts for itself.
struct ClientVerb {
  std::string lease_token;  // of the caller's own lease of the volume, which does not stand in its
                            // way; empty = it has none
  bool detach_exports = false;  // although other processes map it
  bool of_orphans =
      false;  // only while the volume's session is gone; else FailedPrecondition (ADOPTED)
};

/// Which volumes a list is to have.
struct VolumeQuery {
  std::string scan;        // empty = of all scans
  bool in_memory = false;  // only what is acquired, held or being committed
};

/// All volumes, in every state; those that have left memory stay listed for ten minutes, the last
/// 10000. Thread-safe; short critical sections, no device calls inside (memory is let go of outside
/// the lock).
class VolumeStore {
 public:
  VolumeStore(memory::Ledger* ledger, const Clock* clock) : ledger_(ledger), clock_(clock) {}
  /// Before the first volume. The observer must outlive the store's last change.
  void AddObserver(VolumeObserver* observer) { observers_.push_back(observer); }
  /// What protects volumes beside their own state. Set once, before the first volume; asked under
  /// the store's lock.
  struct Protections {
    session::LeaseTable* leases = nullptr;  // null: there are none
    VolumeMappings* mappings = nullptr;     // null: no other process maps anything
  };
  void SetProtections(Protections protections) { protections_ = std::move(protections); }

  /// A volume that begins to be acquired into `slot`. `status` carries name, scan, index, geometry.
  void Add(model::VolumeStatus status, std::shared_ptr<memory::VolumeSlot> slot, int device);
  /// acquiring → held. `final_status` carries times, completeness, digest. `kept`: counts as held
  /// by the client (not LIVE).
  void Seal(const model::VolumeStatus& final_status, bool kept);
  /// acquiring → failed; memory is let go.
  void Fail(const std::string& name, const std::string& reason);

  absl::StatusOr<model::VolumeStatus> Get(const std::string& name);
  std::vector<model::VolumeStatus> List(const VolumeQuery& query = {});  // oldest first
  /// Keeps the bytes readable on the device while the result lives. Held and committing volumes
  /// only. FailedPrecondition (SPILLED) if they are in another tier: whoever works on the device
  /// restores first (Spiller::RestoreNow); (STRIPED) if they lie on several devices.
  absl::StatusOr<PinnedVolume> Pin(const std::string& name);
  /// The same, wherever the bytes are: for those who copy them to the host anyway
  /// (stripe_layout.h).
  absl::StatusOr<PinnedVolume> PinAnyTier(const std::string& name);
  /// The same with `cursor` (null on the device) open for what is in another tier: a move that ends
  /// in this moment removes a file that is not open yet, and then the bytes are elsewhere.
  absl::StatusOr<PinnedVolume> OpenAnyTier(const std::string& name,
                                           std::unique_ptr<storage::SpillCursor>* cursor);
  /// Marks a held volume: LIVE must not overwrite it, its time to live ends. ResourceExhausted
  /// (HOLD_SLOTS_FULL) if `limit` slots of its scan are kept already.
  absl::StatusOr<model::VolumeStatus> Keep(const std::string& name, int64_t limit);
  /// Takes the mark back; `ring`: the scan is a LIVE one that still runs, and may overwrite it
  /// again. Time to live begins anew. Aborted (LEASED), FailedPrecondition (EXPORTED) where `asked`
  /// is given.
  absl::StatusOr<model::VolumeStatus> Unmark(const std::string& name, bool ring,
                                             const ClientVerb* asked = nullptr);
  /// A shared lease of a held volume. FailedPrecondition (VOLUME_STATE, SEALED), NotFound.
  absl::StatusOr<session::Lease> AcquireLease(const session::LeaseRequest& request);
  /// Runs `act`, which makes an export of a volume's memory, if that is still its memory and may be
  /// exported; `borrowed`: the volume was lent for it. FailedPrecondition (MOVING,
  /// EXPORT_NOT_HELD), NotFound (NO_VOLUME, VOLUME_GONE).
  absl::Status WhileMappable(const PinnedVolume& pinned, bool borrowed,
                             const std::function<absl::Status()>& act);
  /// LIVE: as Keep without the mark, for who looks at a volume for a while. Several may.
  absl::Status Lend(const std::string& name, int64_t limit);
  /// The end of one Lend; with the last one the ring may overwrite it again, unless it was kept
  /// otherwise. `ring`: as for Unmark.
  void TakeBack(const std::string& name, bool ring);
  /// `asked`: by a client. Aborted (LEASED), FailedPrecondition (EXPORTED, VOLUME_STATE).
  absl::StatusOr<model::VolumeStatus> Discard(const std::string& name, const std::string& reason,
                                              const ClientVerb* asked = nullptr);
  /// `asked`: by a client. Aborted (LEASED), FailedPrecondition (VOLUME_STATE).
  absl::StatusOr<PinnedVolume> BeginCommit(const std::string& name,
                                           const ClientVerb* asked = nullptr);
  /// committing → committed (memory is let go) or back to held with the error.
  void EndCommit(const std::string& name, const absl::StatusOr<storage::CommitOutcome>& outcome);
  /// LIVE: gives up the oldest held volume of `scan` that is not kept. False if there is none.
  bool OverwriteOldest(const std::string& scan);
  /// LIVE with keep_last: gives up held volumes of `scan` that nobody keeps, but for the newest
  /// `count`, and raw ones likewise.
  void KeepNewest(const std::string& scan, int64_t count);
  /// LIVE, when the scan ends: volumes that nobody kept stay held like any other.
  void KeepAll(const std::string& scan);

  // -- tiers. A volume that is being moved stays what it is to everybody else; one move at a time.
  /// The volume's bytes for a move off the device. FailedPrecondition (VOLUME_STATE, MOVING);
  /// `asked`: by a client, Aborted (LEASED), FailedPrecondition (EXPORTED).
  absl::StatusOr<PinnedVolume> BeginSpill(const std::string& name,
                                          const ClientVerb* asked = nullptr);
  /// As BeginSpill, for the oldest held volume of the scan that is on the device and that no other
  /// process maps (its slot would not become free). NotFound if there is none.
  absl::StatusOr<PinnedVolume> BeginSpillOldest(const std::string& scan);
  /// The bytes are in `spilled` now, the slot is let go; or the move failed and all stays. Bytes of
  /// a volume that went meanwhile are removed.
  void EndSpill(const std::string& name,
                absl::StatusOr<std::shared_ptr<const SpilledVolume>> spilled);
  absl::StatusOr<PinnedVolume> BeginRestore(const std::string& name);
  void EndRestore(const std::string& name, absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot,
                  int device);
  /// The bytes are to be copied into another slot, because somebody keeps this one.
  /// FailedPrecondition (VOLUME_STATE, MOVING, SPILLED).
  absl::StatusOr<PinnedVolume> BeginRelocate(const std::string& name);
  /// They are there now, and the old slot is let go; or it failed and all stays. False if it failed
  /// or the volume went meanwhile.
  bool EndRelocate(const std::string& name,
                   absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> slot);
  /// A volume that an earlier process left behind: held.
  void AddRecovered(model::VolumeStatus status, std::shared_ptr<const SpilledVolume> spilled);

  /// A volume that was made into another tier than the device: held, kept.
  void AddStored(model::VolumeStatus status, std::shared_ptr<const SpilledVolume> spilled);

  // -- what time and clients' ends do to volumes
  struct Due {
    std::vector<model::VolumeStatus> warned;   // will expire within their warning time; told once
    std::vector<model::VolumeStatus> expired;  // discarded
    std::vector<model::VolumeStatus>
        orphans;  // held volumes of sessions that are gone, without leases; told once
  };
  /// `gone`: whether a session has expired.
  Due Tick(const std::function<bool(const std::string& session)>& gone);
  /// An orphan could not be dealt with now: the next Tick tells it again.
  void TellOrphanAgain(const std::string& name);
  /// The session is alive again.
  void Adopt(const std::string& session);

  struct Counts {
    std::map<std::string, int64_t> by_state;  // in memory now
    std::map<std::string, int64_t> by_tier;   // held ones
    std::map<std::string, int64_t>
        finished;  // committed, discarded, failed, overwritten, expired: since start
    double oldest_held_seconds = 0;
    int64_t missing_ascans = 0;
  };
  Counts Count();
  struct ScanCounts {
    int64_t held = 0, committed = 0, discarded = 0, overwritten = 0, commit_failures = 0,
            spilled = 0, expired = 0, kept_slots = 0;
    std::vector<std::string> in_memory;  // oldest first
    bool ring_over = false;  // a LIVE scan that has ended: it overwrites nothing any more
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
    model::VolumeStatus status;
    std::shared_ptr<memory::VolumeSlot> slot;
    int device = 0;
    int64_t sealed_ns = 0, gone_ns = 0;
    int64_t living_ns = 0;  // since when the time to live counts
    bool warned = false;
    bool orphan_told = false;
    std::shared_ptr<const SpilledVolume> spilled;
    int loans = 0;
    bool lent = false;      // kept because of them
    bool restored = false;  // into memory of its own: none of its scan's slots
    /// Whether it takes one of its scan's slots.
    bool InSlot() const {
      return !restored && status.derived_from.empty() && status.tier == model::Tier::kDevice;
    }
  };
  /// What a volume leaves behind, to be let go of outside the lock.
  struct Memory {
    std::shared_ptr<memory::VolumeSlot> slot;
    std::shared_ptr<const SpilledVolume> spilled;
  };
  using Records =
      std::list<Record>;  // oldest first; of those that left memory, the one that left first
  absl::StatusOr<Records::iterator> Find(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  model::VolumeStatus StatusOf(const Record& record) const;
  static PinnedVolume PinOf(const Record& record, model::VolumeStatus status);
  absl::StatusOr<PinnedVolume> BeginSpillOf(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The end of what a Begin… began: `made` takes the place of the volume's memory, which is let
  /// go. An empty one: it failed. `ended` completes the record of a volume that is still there. Its
  /// status if it has moved; memory made for one that went meanwhile is let go.
  std::optional<model::VolumeStatus> EndMove(const std::string& name, Memory made,
                                             const std::function<void(Record&)>& ended);
  /// LEASED (ADOPTED), EXPORTED if a verb must not be done now.
  absl::Status CheckLeases(const Record& record, const ClientVerb* asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckExports(const Record& record, const ClientVerb* asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RingOver(const Record& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// HOLD_SLOTS_FULL if `limit` slots of the record's scan are kept.
  absl::Status CheckHoldSlots(const Record& record, int64_t limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The record leaves memory; what is returned must be let go of outside the lock.
  Memory Leave(Record& record, model::VolumeState to, const std::string& reason,
               const char* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Leave, of a volume of a LIVE scan's ring.
  Memory Overwrite(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// What these tell, `left` and `on_change`, may throw: that is no error of the change, which is
  /// made.
  void LetGo(const std::string& name, Memory memory) noexcept;
  void Changed(const model::VolumeStatus& status) noexcept;
  void Purge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Where what becomes of the record is counted for its scan. Of jobs, and of what an earlier
  /// process left, no totals are kept: nobody would ever forget them.
  ScanCounts& TotalsOf(const Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  memory::Ledger* const ledger_;
  const Clock* const clock_;
  std::vector<VolumeObserver*> observers_;  // in the order in which they are called
  Mutex mutex_;
  // Those in memory, and apart from them (so that nothing on the way of a volume walks through
  // them) those that left it.
  Records records_ ABSL_GUARDED_BY(mutex_), gone_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Records::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::map<uint64_t, Records::iterator>> of_scan_
      ABSL_GUARDED_BY(mutex_);  // those in memory, by scan and number
  std::map<std::string, int64_t> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ScanCounts> scans_
      ABSL_GUARDED_BY(mutex_);                 // running totals; in_memory and held unused
  ScanCounts others_ ABSL_GUARDED_BY(mutex_);  // of all that is of no scan
  int64_t missing_ascans_ ABSL_GUARDED_BY(mutex_) = 0;
  Protections protections_;
};

}  // namespace octavo::volume
