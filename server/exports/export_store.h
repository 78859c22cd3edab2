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
#include "server/volume/volume_mappings.h"
#include "server/volume/volume_store.h"

namespace octavo::exports {

/// Device memory that is to be handed over, and what keeps it.
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
  volume::VolumeHold pinned;  // of a volume
};

/// Who asks for an export.
struct ExportPeer {
  bool local = false;            // by a Unix socket or loopback
  std::optional<uid_t> uid;      // where the kernel tells
  std::string client;            // what it calls itself
  std::set<std::string> accept;  // backends whose memory it can map; empty = all
  bool borrows = false;  // gives back soon: may map volumes that were lent to it (HoldKind::kLoan)
};

enum class ExportState : uint8_t {
  kWaiting = 1,  // its ticket was not presented yet
  kOpen = 2,     // a client has it
  kRevoked = 3   // a client has it, and was told to give it back
};

struct ExportStatus {
  std::string name;  // exports/<id>
  std::string of;    // volumes/... or buffers/...
  uint32_t replica = 0;
  std::string device;
  ExportState state = ExportState::kWaiting;
  std::optional<uid_t> uid;
  pid_t pid = 0;  // 0 = not known yet
  std::string client;
  int64_t mapped_bytes = 0;
  TimePoint created;
  uint64_t memory = 0, generation = 0;
  bool detached =
      false;  // what it is of is gone, or its bytes have moved; only the export keeps the memory
  bool overdue = false;  // revoked, and the time to give it back is over
};

struct ExportTicket {
  handoff::Ticket ticket;
  ExportStatus status;
  ExportedMemory memory;
};

/// Which memory other processes map, and how they come to it: tickets for the hand-over socket;
/// each export keeps its memory (a slot cannot be used for another volume) until the client gives
/// it back or its connection ends. What is discarded meanwhile counts as detached. Nobody can unmap
/// in another process: what was revoked and is overdue does not keep its volume or buffer from
/// anything any more, its user gets nothing else, and what is still wanted moves to other memory
/// (TakeOverdue). Thread-safe; no device calls, no waiting.
///
/// On the socket (see fd_socket.h) a grant answers
///   {"ticket": …, "have": ["<memory>", …]}  and  {"grant": g, "take": "volumes/…", "have": […]}
///       with
///   {"export": "exports/…", "of": …, "memory": "<16 hex digits>", "generation": n, "mapped_bytes":
///       …, "byte_size": …, "byte_offset": 0,
///    "kind": "HOST_MEMFD" | "CUDA_VMM", "device_uuid": …, "scalar": "u8", "lanes": 1, "shape":
///        […], "version": …, "digest": …}
///   and with the descriptor, unless `have` says that the client still maps this memory: a mapping
///   may be kept after a release, and the next volume in the same slot, with another generation, is
///   one message;
///   {"grant": g, "release": "exports/…"}  with {"released": "exports/…"}
/// and tells {"revoked": "exports/…", "grace_seconds": s} out of turn.
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

  /// From now on exports are offered. `socket` must be stopped before this ends.
  void Start(handoff::FdSocket* socket, double grace_seconds);
  bool enabled() const { return socket_ != nullptr; }
  /// No new exports from now on (DRAINING).
  void BeginDrain() { draining_ = true; }
  bool draining() const { return draining_; }

  /// Whether this peer may have any export at all: FailedPrecondition (EXPORT_DISABLED),
  /// PermissionDenied (EXPORT_REMOTE, EXPORT_REFUSED: it did not give back what was revoked),
  /// Unavailable (DRAINING).
  absl::Status Admit(const ExportPeer& peer);
  /// The memory of a held volume. FailedPrecondition (EXPORT_NOT_SEALED, EXPORT_SPILLED,
  /// EXPORT_NOT_HELD: a LIVE scan may overwrite it; EXPORT_NOT_SHAREABLE), NotFound (NO_VOLUME,
  /// VOLUME_GONE), OutOfRange (BAD_REPLICA).
  absl::StatusOr<ExportedMemory> OfVolume(const std::string& name, uint32_t replica,
                                          bool borrowed = false);
  /// Fills in memory, device_uuid, backend. FailedPrecondition (EXPORT_NOT_SHAREABLE).
  absl::Status Describe(const DeviceBuffer& memory, ExportedMemory* out);
  /// A ticket for a grant of somebody else's about memory, as for Issue.
  absl::StatusOr<handoff::Ticket> IssueFor(std::shared_ptr<handoff::Grant> grant,
                                           const ExportPeer& peer);
  /// The memory of a held volume, for a client that is connected: an export that is open, what the
  /// client is to be told of it (`request`: what it said, for "have") and its name. The errors of
  /// Admit, OfVolume and Issue; FailedPrecondition (MOVING). `most_slots`: of its scan that may be
  /// mapped at once, this one included (as SlotsOf counts); ResourceExhausted (SLOTS) beyond.
  absl::StatusOr<handoff::Answer> Take(const std::string& of, const ExportPeer& peer,
                                       const handoff::Peer& who, const nlohmann::json& request,
                                       std::shared_ptr<handoff::Link> link, std::string* name,
                                       int64_t most_slots = std::numeric_limits<int64_t>::max());
  /// An export that Take has made ends. False if it has ended.
  bool End(const std::string& name);
  /// Runs what makes the export, which never waits, under the lock of the store that owns the
  /// memory, if it still is what it was.
  using Under = std::function<absl::Status(const std::function<absl::Status()>& make)>;
  /// A ticket for it; `under` is that of a buffer (volumes: the VolumeStore's, by itself).
  /// Unimplemented (EXPORT_KIND: the peer does not accept this backend's memory), ResourceExhausted
  /// (TICKETS); what `under` and, of volumes, VolumeStore::WhileMappable refuse.
  absl::StatusOr<ExportTicket> Issue(ExportedMemory memory, const ExportPeer& peer,
                                     const Under& under = nullptr);

  /// Revokes exports/..., or all exports of volumes/... or buffers/.... A ticket that no process
  /// has presented becomes void; a process that has the memory is asked to give it back. Returns
  /// how many were revoked. NotFound (NO_EXPORT).
  absl::StatusOr<int64_t> Revoke(const std::string& name);
  std::vector<ExportStatus> List(const std::string& of = "");  // oldest first
  /// FailedPrecondition (EXPORTED, with count and users) if somebody maps the memory that it has
  /// now.
  absl::Status CheckFree(const std::string& of) override;
  /// It is gone: the memory of its exports is detached.
  void Gone(const std::string& of);
  /// It is out of the memory of `charge`, which is detached if somebody maps it. Called while that
  /// memory is there still: no other has the charge.
  void Left(const std::string& of, memory::Ledger::ChargeId charge) override;

  /// What other processes map or have a ticket for, in the memory that it has now.
  std::set<std::string> Mapped() override;
  /// Slots of a scan's volumes that exports keep, what is gone included.
  int64_t SlotsOf(const std::string& scan);

  /// Memory that was not given back in time.
  struct Overdue {
    std::string of;
    uint32_t replica = 0;
    memory::Ledger::ChargeId charge = 0;
  };
  /// What still has its bytes in memory that is overdue, each once: they should move. Asked again
  /// after kRetrySeconds unless Moved says that they have.
  std::vector<Overdue> TakeOverdue();
  static constexpr double kRetrySeconds = 5;
  /// The bytes are in other memory now: that of `charge` is detached; or they could not be moved.
  void Moved(const Overdue& what, const absl::Status& status);

  struct Counts {
    int64_t exports = 0, waiting = 0, revoked = 0, overdue = 0, detached_bytes = 0;  // now
    int64_t granted = 0, descriptors_sent = 0;  // since the start
    int64_t moved = 0, not_moved = 0;           // out of overdue memory; tries that failed
    std::map<std::string, int64_t> refused;     // by reason, those of the socket too
  };
  Counts Count();

 private:
  class Port;
  struct Entry {
    ExportStatus status;
    ExportedMemory memory;
    int64_t due_ns = 0;                   // revoked: until when it should be back
    int64_t asked_ns = 0;                 // when TakeOverdue told of it last
    std::shared_ptr<handoff::Link> link;  // once open
  };
  using Entries = std::map<uint64_t, Entry>;  // by order of making
  Entry& AddLocked(const std::string& name, ExportedMemory memory, const ExportPeer& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AdmitLocked(const ExportPeer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<handoff::Answer> Open(const std::string& name, const handoff::Peer& peer,
                                       const nlohmann::json& request,
                                       std::shared_ptr<handoff::Link> link);
  /// Of all charges where it is not given.
  void MoveToLimboLocked(const std::string& of, std::optional<memory::Ledger::ChargeId> charge)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t SlotsLocked(const std::string& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  handoff::Answer AnswerLocked(const Entry& entry, const nlohmann::json& request)
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
  std::map<uint64_t, Use> uses_ ABSL_GUARDED_BY(mutex_);  // by memory: what was exported of it last
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::exports
