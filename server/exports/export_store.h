#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "gpu/device/exportable_memory.h"
#include "server/handoff/fd_socket.h"
#include "server/memory/ledger.h"
#include "server/security/owner.h"
#include "server/security/principal.h"
#include "server/volume/volume_mappings.h"
#include "server/volume/volume_store.h"

namespace octavo::exports {

/// Device memory to be handed to another process, and the references that keep it alive.
struct ExportedMemory {
  std::string name;  // volumes/... or buffers/...
  std::string scan;  // of a volume
  uint32_t replica = 0;
  int device = 0;
  std::string device_uuid, backend;  // "host", "cuda"
  SharedMemory memory;
  ArrayType type;
  uint64_t version = 1;
  std::string digest;  // of volumes
  memory::Ledger::ChargeId charge = 0;
  std::shared_ptr<const void> keep;
  volume::VolumeHold pinned;   // of a volume, until the export is made
  security::Owner owner = {};  // of the volume or buffer
  std::string parent = {};     // scans/... or jobs/... that made the volume
  std::string holder = {};     // what the ledger calls it, if not by its name
};

/// The process that requests an export.
struct ExportPeer {
  bool local = false;            // connected by a Unix socket or loopback
  std::optional<uid_t> uid;      // if the kernel reports it
  std::string client;            // the client's own name for itself
  std::set<std::string> accept;  // backends whose memory it can map; empty = all
  bool borrows = false;        // returns memory soon: may map volumes lent to it (HoldKind::kLoan)
  security::Owner owner = {};  // who asks
};

enum class ExportState : uint8_t {
  kWaiting = 1,  // no process has presented its ticket yet
  kOpen = 2,     // a client has it
  kRevoked = 3   // a client has it and was asked to return it
};

struct ExportStatus {
  std::string name;     // exports/<id>
  uint64_t number = 0;  // in the order they were made; of a list only
  std::string of;       // volumes/... or buffers/...
  uint32_t replica = 0;
  std::string device;
  ExportState state = ExportState::kWaiting;
  std::optional<uid_t> uid;
  pid_t pid = 0;  // 0 = not known yet
  std::string client;
  security::Owner owner = {};  // who asked for it
  int64_t mapped_bytes = 0;
  TimePoint created;
  uint64_t memory = 0, generation = 0;
  bool detached =
      false;  // its object has ended or its bytes have moved; only the export keeps the memory
  bool overdue = false;  // revoked, and the deadline to return it has passed
};

struct ExportTicket {
  handoff::Ticket ticket;
  ExportStatus status;
  ExportedMemory memory;
};

/// Memory that other processes map, and the tickets with which they get it from the hand-over
/// socket. Each export keeps its memory (no other volume can use the slot) until the client gives
/// it back or its connection ends. If the volume or buffer is discarded in the meantime, the memory
/// counts as detached. The server cannot unmap memory in another process. A revoked export that is
/// overdue therefore no longer protects its volume or buffer, its user gets no further exports, and
/// data that is still needed moves to other memory (TakeOverdue). Thread-safe; no device calls, no
/// waiting.
class ExportStore final : public volume::VolumeMappings {
 public:
  struct Context {
    std::vector<Device*> devices;
    memory::Ledger* ledger = nullptr;
    volume::VolumeStore* volumes = nullptr;
    const Clock* clock = nullptr;
    std::string server_id;
  };
  explicit ExportStore(Context context) : context_(std::move(context)) {}

  /// Offers exports from now on. `socket` must be stopped before this object is destroyed.
  void Start(handoff::FdSocket* socket, double grace_seconds);
  bool enabled() const { return socket_ != nullptr; }
  /// Refuses new exports from now on (DRAINING).
  void BeginDrain() { draining_ = true; }
  bool draining() const { return draining_; }

  /// Whether this peer may have any export at all: FailedPrecondition (EXPORT_DISABLED),
  /// PermissionDenied (EXPORT_REMOTE, EXPORT_REFUSED: it did not return revoked memory),
  /// Unavailable (DRAINING).
  absl::Status Admit(const ExportPeer& peer);
  /// The memory of a held volume. FailedPrecondition (EXPORT_NOT_SEALED, EXPORT_SPILLED,
  /// EXPORT_NOT_HELD: a LIVE scan may overwrite it; EXPORT_NOT_SHAREABLE), NotFound (NO_VOLUME,
  /// VOLUME_GONE), OutOfRange (BAD_REPLICA).
  absl::StatusOr<ExportedMemory> OfVolume(const std::string& name, uint32_t replica,
                                          bool borrowed = false);
  /// Fills in memory, device_uuid, backend. FailedPrecondition (EXPORT_NOT_SHAREABLE).
  absl::Status Describe(const DeviceBuffer& memory, ExportedMemory* out);
  /// Issues a ticket for another component's grant of memory, as for Issue.
  absl::StatusOr<handoff::Ticket> IssueFor(std::shared_ptr<handoff::Grant> grant,
                                           const ExportPeer& peer);
  /// Exports the memory of a held volume to a connected client. The export is open at once. Returns
  /// the answer for the client, with a descriptor unless `have` names the memory, and the export's
  /// name in `name`. The errors of Admit, OfVolume and Issue; FailedPrecondition (MOVING).
  /// `most_slots`: how many slots of its scan may be mapped at the same time, this one included (as
  /// SlotsOf counts); beyond that, ResourceExhausted.
  absl::StatusOr<handoff::Answer> Take(const std::string& of, const ExportPeer& peer,
                                       const handoff::Peer& who, const std::set<std::string>& have,
                                       std::shared_ptr<handoff::Link> link, std::string* name,
                                       int64_t most_slots = std::numeric_limits<int64_t>::max());
  /// Ends an export that Take has made. False if it has already ended.
  bool End(const std::string& name);
  /// Runs `make`, which makes the export and never waits, under the lock of the store that owns the
  /// memory, provided that the memory is unchanged.
  using Under = std::function<absl::Status(const std::function<absl::Status()>& make)>;
  /// Issues a ticket for `memory`; pass `under` for a buffer (for volumes the VolumeStore provides
  /// it). Unimplemented (EXPORT_KIND: the peer does not accept this backend's memory),
  /// ResourceExhausted (TICKETS), and the errors of `under` or, for volumes, of
  /// VolumeStore::WhileMappable.
  absl::StatusOr<ExportTicket> Issue(ExportedMemory memory, const ExportPeer& peer,
                                     const Under& under = nullptr);

  /// Revokes exports/..., or all exports of volumes/... or buffers/.... A ticket that no process
  /// has presented becomes void; a process that has the memory is asked to return it. Returns the
  /// number of revoked exports. Whoever may change an export, or the volume or buffer whose memory
  /// it keeps, may revoke it; if the caller may not for one of several, none is revoked. NotFound
  /// (NO_EXPORT), PermissionDenied (NOT_OWNER).
  absl::StatusOr<int64_t> Revoke(const std::string& name, const security::Principal& caller = {});
  std::vector<ExportStatus> List(const std::string& of = "");  // oldest first
  /// FailedPrecondition (EXPORTED, with count and users) if a process maps the object's present
  /// memory.
  absl::Status CheckFree(const std::string& of) override;
  /// The object is gone: detaches the memory of its exports.
  void Gone(const std::string& of);
  /// The object has left the memory of `charge`; if a process maps that memory, it is detached.
  /// Call while the memory still exists, so that no other memory has the same charge.
  void Left(const std::string& of, memory::Ledger::ChargeId charge) override;

  /// The objects whose present memory other processes map or have a ticket for.
  std::set<std::string> Mapped() override;
  /// Slots of a scan's volumes that exports keep, those of volumes that are gone included.
  int64_t SlotsOf(const std::string& scan);

  /// Memory that clients did not return in time.
  struct Overdue {
    std::string of;
    uint32_t replica = 0;
    memory::Ledger::ChargeId charge = 0;
  };
  /// Objects whose bytes are still in overdue memory, each once: the caller should move them.
  /// Returns an object again after kRetrySeconds unless Moved reports success.
  std::vector<Overdue> TakeOverdue();
  static constexpr double kRetrySeconds = 5;
  /// Reports the result of a move. On success, detaches the memory of `charge`.
  void Moved(const Overdue& what, const absl::Status& status);

  struct Counts {
    int64_t exports = 0, waiting = 0, revoked = 0, overdue = 0, detached_bytes = 0;  // now
    int64_t granted = 0, descriptors_sent = 0;  // since the start
    int64_t moved = 0, not_moved = 0;           // moves out of overdue memory; failed attempts
    std::map<std::string, int64_t> refused;     // by reason, the socket's reasons included
  };
  Counts Count();

 private:
  class Port;
  struct Entry {
    ExportStatus status;
    ExportedMemory memory;
    int64_t due_ns = 0;                   // revoked: the deadline for its return
    int64_t asked_ns = 0;                 // when TakeOverdue last returned it
    std::shared_ptr<handoff::Link> link;  // once open
  };
  using Entries = std::map<uint64_t, Entry>;  // by order of creation
  Entry& AddLocked(const std::string& name, ExportedMemory memory, const ExportPeer& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AdmitLocked(const ExportPeer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<handoff::Answer> Open(const std::string& name, const handoff::Peer& peer,
                                       const std::set<std::string>& have,
                                       std::shared_ptr<handoff::Link> link);
  /// Without `charge`: memory of every charge.
  void DetachLocked(const std::string& of, std::optional<memory::Ledger::ChargeId> charge)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t SlotsLocked(const std::string& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  handoff::Answer AnswerLocked(const Entry& entry, const std::set<std::string>& have)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refuse(absl::Status status);
  bool IsOverdue(const Entry& entry) const {
    return entry.due_ns > 0 && context_.clock->Now().monotonic_ns > entry.due_ns;
  }

  const Context context_;
  std::atomic<handoff::FdSocket*> socket_{nullptr};
  std::atomic<bool> draining_{false};
  double grace_seconds_ = 10;
  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  struct Use {
    std::string of;
    uint64_t version = 0, generation = 0;
  };
  std::map<uint64_t, Use> uses_ ABSL_GUARDED_BY(mutex_);  // by memory: the last export of it
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::exports
