#pragma once

// Verbs and what protects a volume from them. The VolumeStore checks each cell and performs the
// verb under its one lock. Therefore one of two conflicting verbs succeeds, and the error of the
// other names the holder or the cause (reason in capitals).
//
//                         somebody's   export (maps mark, kept, being      COMMITTING   reads and
//                         lease (1)    or ticket)   lent        moved                   commits
//   AcquireLease          goes with it -            -           -          VOLUME_STATE -
//   DiscardVolume         LEASED       EXPORTED (2) -           - (3)      VOLUME_STATE - (4)
//   CommitVolume          LEASED       - (5)        -           - (3)      VOLUME_STATE - (4)
//   SpillVolume           LEASED       EXPORTED     -           MOVING     -            - (4)
//   RestoreVolume         -            -            -           MOVING     -            - (4)
//   HoldVolume            -            -            -           -          -            -
//   ReleaseVolume,        LEASED       EXPORTED     lent: stays -          - (9)        -
//     of a LIVE scan                                   lent (6)
//   Export                -            -            needs one   MOVING (7) -            -
//   end of ttl_seconds    waits        - (5)        mark: never waits      waits        - (4)
//   orphan policy         waits        - (5)        -           waits      waits        - (4)
//   overwrite, keep_last  - (8)        needs kept   never       waits      never        - (4)
//   AUTO_COMMIT, AUTO_DISCARD, on_full = SPILL_…
//                         as the scan's client chose, whoever has a lease (8); what is mapped
//                         is not spilled
//
//   (1) Except the caller's own lease, whose token comes with the call. (2) Unless detach_exports.
//   (3) The move ends by itself: it finds that the volume has left, or is elsewhere once the commit
//   has ended. (4) They keep the memory (VolumeHold) until they finish, and nothing changes it. (5)
//   The memory stays detached until the client returns it. (6) Until the loan ends. (7) Off the
//   device only. (8) The engine waits for no client. (9) A failed commit keeps the volume anyway.
//
// Before all that, a client needs the right to change the volume (security/rights.h, NOT_OWNER) for
// each verb but AcquireLease and Export, which only read.
//
// When a volume leaves memory, its leases end (LEASE_LOST) under the same lock. Leases of a session
// that has ended protect nothing. If the session comes back (KeepAlive) before the orphan policy
// has handled its volumes, it has its leases again.
//
// In the code, the mark is RetentionRing::Mark and Unmark; lent is a VolumeHold of kind kLoan;
// reads and commits have one of kind kMemory, kRead or kDevice; kept and being moved are states of
// the entry (volume_entry.h).
//
// Order of locks: BufferTurns, BufferTable, VolumeStore, then one of ExportStore, LeaseTable
// (then ClientSessions), Ledger. No callback runs under any of these locks.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/memory/ledger.h"
#include "server/memory/volume_slot.h"
#include "server/model/status_types.h"
#include "server/session/lease.h"
#include "server/volume/retention_ring.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_commit.h"
#include "server/volume/volume_entry.h"
#include "server/volume/volume_expiry.h"
#include "server/volume/volume_hold.h"
#include "server/volume/volume_news.h"
#include "server/volume/volume_table.h"
#include "server/volume/volume_tiers.h"

namespace octavo::volume {

/// Which volumes List returns.
struct VolumeQuery {
  std::string parent;      // scans/<id> or jobs/<id>; empty = of all
  bool in_memory = false;  // only what is acquired, held or being committed
  uint64_t after = 0;      // only those with a greater number
  size_t most = std::numeric_limits<size_t>::max();  // so many, the oldest
};

/// All volumes, in every state. Volumes that have left memory stay listed for ten minutes, at most
/// the last 10000. This class manages the life of a volume; the ring, the tiers and the expiry work
/// on the same volumes under the same lock. Thread-safe; critical sections are short and make no
/// device calls (memory is released outside the lock).
class VolumeStore {
 public:
  VolumeStore(memory::Ledger* ledger, const Clock* clock) : table_(ledger, clock) {}
  /// Call before the first volume. The observer must outlive the store's last change.
  void AddObserver(VolumeObserver* observer) { table_.AddObserver(observer); }
  /// Call before the first volume: VolumeTable::SetEarlier.
  void SetEarlier(EarlierVolume earlier) { table_.SetEarlier(std::move(earlier)); }
  using Protections = VolumeProtections;
  /// Set once, before the first volume.
  void SetProtections(const Protections& protections) { table_.SetProtections(protections); }
  /// As VolumeTable::SetMirrors.
  void SetMirrors(bool on) { table_.SetMirrors(on); }

  RetentionRing& ring() { return ring_; }
  VolumeTiers& tiers() { return tiers_; }
  VolumeExpiry& expiry() { return expiry_; }

  // -- the life of a volume
  /// Adds a volume that is about to be acquired into `slot`. `volume` carries name, scan, index,
  /// geometry.
  void Add(const model::VolumeStatus& volume, std::shared_ptr<memory::VolumeSlot> slot, int device);
  /// acquiring → held. `final_status` carries times, completeness, digest. `kept`: counts as held
  /// by the client (not LIVE).
  UntoldSeal Seal(const model::VolumeStatus& final_status, bool kept);
  /// acquiring → failed; releases the memory.
  void Fail(const std::string& name, Reason code, const std::string& reason);
  /// Records that a chain of the scan made nothing of the volume. Nothing happens if the volume has
  /// left memory.
  void AddSkippedChain(const std::string& name, model::SkippedChain skipped);
  /// Adds a volume that was made in a tier other than the device, or that an earlier process left
  /// there (recovered): held, kept. A file of it says of its mark what `volume` says.
  void AddStored(const model::VolumeStatus& volume, std::shared_ptr<const SpilledVolume> spilled);
  /// `asked`: set if a client asks. PermissionDenied (NOT_OWNER), Aborted (LEASED),
  /// FailedPrecondition (EXPORTED, VOLUME_STATE).
  absl::StatusOr<model::VolumeStatus> Discard(const std::string& name, Reason code,
                                              const std::string& reason,
                                              const ClientVerb* asked = nullptr);
  /// held → committing. Its Finish makes the volume committed, and releases the memory, or held
  /// again with the error. `asked`: set if a client asks. PermissionDenied (NOT_OWNER), Aborted
  /// (LEASED), FailedPrecondition (VOLUME_STATE).
  absl::StatusOr<VolumeCommit> BeginCommit(const std::string& name,
                                           const ClientVerb* asked = nullptr);

  // -- lookups and uses
  absl::StatusOr<model::VolumeStatus> Get(const std::string& name);
  std::vector<model::VolumeStatus> List(const VolumeQuery& query = {});  // oldest first
  /// Held and committing volumes only: FailedPrecondition (VOLUME_STATE), NotFound (NO_VOLUME,
  /// VOLUME_GONE). kDevice: FailedPrecondition (SPILLED) if the bytes are in another tier, so
  /// device work restores first (Spiller::RestoreNow); (STRIPED) if they lie on several devices.
  /// kLoan: as RetentionRing::Lend, held volumes only; only kLoan uses `hold_slots`.
  absl::StatusOr<VolumeHold> Hold(const std::string& name, HoldKind kind, int64_t hold_slots = 0);
  /// A shared lease of a held volume. FailedPrecondition (VOLUME_STATE, SEALED), NotFound.
  absl::StatusOr<session::Lease> AcquireLease(const session::LeaseRequest& request);
  /// Runs `act`, which exports a volume's memory, if `hold` still is the volume's memory and it may
  /// be exported. `borrowed`: the volume is on loan for the export. FailedPrecondition (MOVING,
  /// EXPORT_NOT_HELD), NotFound (NO_VOLUME, VOLUME_GONE).
  absl::Status WhileMappable(const VolumeHold& hold, bool borrowed,
                             const std::function<absl::Status()>& act);

  // -- counts
  struct Counts {
    std::map<std::string, int64_t> by_state;  // in memory now
    std::map<std::string, int64_t> by_tier;   // held ones
    std::map<std::string, int64_t>
        finished;  // committed, discarded, failed, overwritten, expired: since start
    double oldest_held_seconds = 0;
    int64_t missing_ascans = 0;
    int64_t mirrors = 0, mirror_bytes = 0;         // copies in the tier DISK of volumes in another
    int64_t unmirrored = 0, unmirrored_bytes = 0;  // held ones without, that could have one
  };
  Counts Count();
  struct ScanCounts {
    int64_t held = 0, committed = 0, discarded = 0, overwritten = 0, commit_failures = 0,
            spilled = 0, expired = 0, kept_slots = 0;
    std::vector<std::string> in_memory;  // oldest first
  };
  ScanCounts CountOf(const std::string& scan);
  /// The scans of all volumes in memory.
  std::set<std::string> ScansInMemory();
  /// The volumes in memory of a session, oldest first.
  std::vector<std::string> NamesOfSession(const std::string& session);
  /// The number of the scan's volumes that are held on the device and mapped by other processes.
  int64_t MappedOf(const std::string& scan);
  /// The scan is no longer listed: drops its totals.
  void ForgetScan(const std::string& scan);

 private:
  void Insert(VolumeEntry entry);
  absl::StatusOr<VolumeHold> HoldMemory(const std::string& name);
  /// Opens the bytes in another tier. Tries again if a move ends at this moment, because it removes
  /// a file that is not open yet; the bytes are then elsewhere.
  absl::StatusOr<VolumeHold> HoldOpen(const std::string& name);
  absl::StatusOr<VolumeHold> HoldOnDevice(const std::string& name);

  VolumeTable table_;
  RetentionRing ring_{table_};
  VolumeTiers tiers_{table_};
  VolumeExpiry expiry_{table_};
};

}  // namespace octavo::volume
