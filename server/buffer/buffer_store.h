#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/base/request_ids.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/stream_ordering.h"
#include "server/exports/export_store.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "server/model/buffer_types.h"
#include "server/model/frame.h"
#include "server/session/lease.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {

/// Memory of a buffer on one device, and the order of its reads and writes. The last reference
/// frees the memory and ends its charge. The buffer and the work in progress hold references.
struct BufferReplica {
  ~BufferReplica();
  memory::Ledger* ledger = nullptr;
  memory::Ledger::ChargeId charge = 0;
  int device = 0;
  DeviceBuffer memory;
  AccessTracker order;
  uint64_t version = 0;
  model::BufferState state = model::BufferState::kUninitialized;
};

// Verbs of buffers and leases. A verb that reads needs a shared lease; a verb that writes, moves or
// ends a buffer needs an exclusive one. It uses the caller's lease, by its token, or takes one of
// its own while it works (LeaseTable::Guard), so verbs exclude each other as leases do. A verb acts
// under the store's lock, after checking there that its lease still stands (Guard::Stands) and what
// state the buffer is in. AcquireLease grants under this lock; waiting clients are granted without
// it. Of two conflicting calls one therefore succeeds, and the other fails with LEASED (with holder
// and mode), LEASE_LOST, NO_BUFFER or EXPORTED.
//
//                      shared lease   exclusive lease   export           being written
//                      of another     of another
//   AcquireLease       with SHARED    LEASED            -                -
//   ReadBuffer         -              LEASED            -                PARTIAL
//   ApplyOp, input     -              LEASED            -                PARTIAL
//   ApplyOp, output    LEASED         LEASED            - (1)            PARTIAL
//   WriteBuffer        LEASED         LEASED            - (1)            LEASED
//   SyncReplicas       LEASED         LEASED            - (1)            LEASED
//   Export             needs the caller's exclusive lease                PARTIAL
//   DestroyBuffer      LEASED         LEASED            EXPORTED (2)     LEASED
//   UpdateBuffer       -              -                 -                -
//   end of ttl_seconds waits          waits             - (3)            waits
//   relocation         waits          waits             what it is for   waits
//
//   (1) The holder of the exclusive lease under which it was exported decides. (2) Unless
//   detach_exports. (3) The memory is detached.
//
// Order of locks: turn_mutex_, mutex_, those of other stores (volume_store.h). With the turn, verbs
// that arrive together take their own leases one after the other instead of refusing each other.
// Callbacks to clients that wait for a lease or watch buffers run without any of these locks.

/// Client-created arrays, replicated over devices. Thread-safe. Calls that copy or allocate take
/// milliseconds and are meant for worker threads (Post). No call waits for a device, except those
/// of Reader and Writer.
///
/// Order: the store enqueues every piece of work under one lock and numbers it
/// (BufferStatus.sequence). On the device, the work waits for the last writers of its inputs and
/// for earlier readers and writers of its outputs. Clients see the same results as if all work ran
/// one by one in this order. Work in progress keeps its memory alive; a thread per device follows
/// the streams and releases it.
class BufferStore {
 public:
  struct Context {
    std::vector<Device*> devices;
    memory::Ledger* ledger = nullptr;
    volume::VolumeStore* volumes = nullptr;
    session::LeaseTable* leases = nullptr;
    const Clock* clock = nullptr;
    exports::ExportStore* exports = nullptr;
    std::vector<std::shared_ptr<memory::FramePool>> frames;  // by device
    std::string server_id;
    int64_t most_elements = int64_t{1} << 30;
    int64_t quota_bytes = 0;  // device memory of one owner; 0 = no limit
    double slow_reader_seconds = 30;
  };
  explicit BufferStore(Context context);
  ~BufferStore();

  /// Refuses new buffers and operations from now on (DRAINING).
  void BeginDrain() { draining_ = true; }

  absl::StatusOr<model::BufferStatus> Create(const model::BufferSpec& spec,
                                             const model::Caller& caller);
  absl::StatusOr<model::BufferStatus> Get(const std::string& name, const model::Caller& caller);
  std::vector<model::BufferStatus> List(
      const model::Caller& caller);  // oldest first; without others' private buffers
  struct Update {
    std::string name, etag;
    bool set_labels = false, set_ttl = false;
    std::map<std::string, std::string> labels;
    double ttl_seconds = 0;
  };
  absl::StatusOr<model::BufferStatus> Change(const Update& update, const model::Caller& caller);
  /// FailedPrecondition (EXPORTED) if other processes map the buffer. With `detach` the buffer is
  /// destroyed anyway and its memory is detached.
  absl::Status Destroy(const std::string& name, const std::string& etag,
                       const std::string& lease_token, const model::Caller& caller,
                       bool detach = false);
  absl::StatusOr<model::BufferStatus> Sync(const std::string& name, uint32_t source,
                                           const std::vector<uint32_t>& targets,
                                           const std::string& lease_token,
                                           const model::Caller& caller);
  absl::StatusOr<model::BufferStatus> Apply(const model::BufferApplySpec& spec,
                                            const model::Caller& caller);
  /// As LeaseTable::Acquire, for a buffer that exists when the lease is granted; NotFound
  /// (NO_BUFFER), PermissionDenied (NOT_OWNER). `done` is called without locks.
  uint64_t AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                        session::LeaseTable::Done done);
  /// `done` is called once, from a thread of the store, when all work enqueued on the buffer so far
  /// has finished.
  absl::Status Wait(const std::string& name, const model::Caller& caller,
                    std::function<void(absl::StatusOr<model::BufferStatus>)> done);

  /// Copies a replica into new memory, because another process keeps the present one. Aborted
  /// (LEASED) while a lease on it exists or it is being written, ResourceExhausted (DEVICE_FULL),
  /// NotFound. Call from a thread that may wait; the copy itself is enqueued.
  absl::Status Relocate(const exports::ExportStore::Overdue& what);
  /// Issues a ticket for the memory of a replica under the caller's exclusive lease; waits for its
  /// last write. FailedPrecondition (EXPORT_LEASE), and the errors of ExportStore. Call from a
  /// thread that may wait.
  absl::StatusOr<exports::ExportTicket> Export(const model::ExportSpec& spec,
                                               const model::Caller& caller,
                                               const exports::ExportPeer& peer);

  /// One write: Chunks in order, then Finish. A writer destroyed before Finish counts as broken
  /// off. One thread at a time; Chunk may wait for the upload of earlier ones.
  class Writer {
   public:
    virtual ~Writer() = default;
    virtual absl::Status Chunk(const std::vector<std::pair<const char*, size_t>>& pieces) = 0;
    virtual absl::StatusOr<model::BufferStatus> Finish() = 0;
  };
  static constexpr int64_t kMostChunk = 1 << 20;
  static constexpr int64_t kStagedWhole = 16 << 20;  // longer writes and reads are split
  absl::StatusOr<std::unique_ptr<Writer>> OpenWrite(const model::BufferWriteSpec& spec,
                                                    const model::Caller& caller);

  /// One read, piece by piece. One Next at a time.
  class Reader {
   public:
    virtual ~Reader() = default;
    const ArrayType& type() const { return type_; }  // of what is read
    const std::vector<uint64_t>& versions() const { return versions_; }
    const std::vector<uint32_t>& replicas() const { return replicas_; }
    int64_t total_bytes() const { return type_.bytes(); }
    /// Waits for the device and returns at most max_bytes; empty at the end. Aborted (SLOW_READER)
    /// if the last call was too long ago.
    virtual absl::StatusOr<model::Bytes> Next(int64_t max_bytes) = 0;
    /// Releases the buffer if the client has read nothing for too long.
    virtual void CutIfSlow(int64_t) {}

   protected:
    ArrayType type_;
    std::vector<uint64_t> versions_;
    std::vector<uint32_t> replicas_;
  };
  absl::StatusOr<std::shared_ptr<Reader>> OpenRead(const model::BufferReadSpec& spec,
                                                   const model::Caller& caller);

  /// Calls `told` for every buffer now and for each change, on the thread that made the change,
  /// until the returned handle is destroyed.
  using Told = std::function<void(model::BufferEventKind, const model::BufferStatus&,
                                  const std::string& text)>;
  std::shared_ptr<void> Watch(const model::Caller& caller, Told told);

  struct Totals {
    int64_t buffers = 0, bytes = 0, operations = 0, uploaded_bytes = 0, forwarded_bytes = 0,
            read_bytes = 0;
    std::map<std::string, int64_t> gone;           // by reason: "destroyed", "expired"
    std::map<std::string, int64_t> refusals;       // calls that failed, by reason
    std::map<int, int64_t> replicas_on, bytes_on;  // now, by device
    int64_t owners = 0, largest_owner_bytes = 0;   // now
    int64_t quota_bytes = 0;
  };
  Totals Count();
  /// Expires overdue buffers and cuts off readers that take nothing. Call about twice a second.
  void Housekeep();
  /// Returns once no device has work in progress (for tests).
  absl::Status Drain();

 private:
  friend class BufferWriter;
  friend class SmallReader;
  friend class LargeReader;
  struct Buffer {
    model::BufferStatus status;  // name, type, labels, owner ...; replicas: filled in on demand
    std::string key;
    std::vector<std::shared_ptr<BufferReplica>> replicas;
    double ttl_seconds = 0;
    int64_t expires_ns = 0;  // 0 = never
    bool warned = false;
    uint64_t revision = 0;
  };
  using BufferPtr = std::shared_ptr<Buffer>;
  struct ReadPlace;

  absl::StatusOr<model::BufferStatus> CreateNow(const model::BufferSpec& spec,
                                                const model::Caller& caller);
  absl::StatusOr<model::BufferStatus> ChangeNow(const Update& update, const model::Caller& caller);
  absl::Status DestroyNow(const std::string& name, const std::string& etag,
                          const std::string& lease_token, const model::Caller& caller, bool detach);
  absl::StatusOr<model::BufferStatus> SyncNow(const std::string& name, uint32_t source,
                                              const std::vector<uint32_t>& targets,
                                              const std::string& lease_token,
                                              const model::Caller& caller);
  absl::StatusOr<model::BufferStatus> ApplyNow(const model::BufferApplySpec& spec,
                                               const model::Caller& caller);
  absl::StatusOr<std::unique_ptr<Writer>> OpenWriteNow(const model::BufferWriteSpec& spec,
                                                       const model::Caller& caller);
  absl::StatusOr<std::shared_ptr<Reader>> OpenReadNow(const model::BufferReadSpec& spec,
                                                      const model::Caller& caller);
  /// Counts the answer to a client if it is an error.
  void CountRefusal(const absl::Status& answer);
  template <class T>
  absl::StatusOr<T> Counted(absl::StatusOr<T> answer) {
    CountRefusal(answer.status());
    return answer;
  }
  absl::StatusOr<BufferPtr> FindLocked(const std::string& name, const model::Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  model::BufferStatus StatusLocked(const Buffer& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TouchLocked(Buffer& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckReadable(const Buffer& buffer, size_t replica, bool allow_uninitialized) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CoherentLocked(const Buffer& buffer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static uint64_t NewestOf(const Buffer& buffer);
  absl::StatusOr<ArrayType> CheckType(Scalar scalar, uint64_t lanes,
                                      const std::vector<uint64_t>& shape) const;
  absl::StatusOr<std::vector<int>> CheckDevices(const std::vector<uint32_t>& devices) const;
  absl::Status CheckTtl(double seconds) const;
  absl::Status NotDraining() const;
  absl::StatusOr<std::string> BeginRequest(const std::string& id,
                                           const std::string& digest);  // as RequestIds
  void EndRequest(const std::string& id, const std::string& name);
  /// Reserves, allocates and clears replicas. Does not list the buffer yet.
  absl::StatusOr<BufferPtr> Make(const ArrayType& type, const std::vector<int>& devices,
                                 const std::string& name, const model::Caller& caller, bool ready);
  absl::Status CheckQuota(const std::string& owner, int64_t bytes);
  /// `key`: the key of a private buffer.
  void Tell(model::BufferEventKind kind, const model::BufferStatus& status, const std::string& key,
            const std::string& text);
  absl::Status CheckOperand(const Buffer& buffer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Enqueues a copy from device to device, on a stream of the device of `to`.
  absl::Status ForwardLocked(const std::shared_ptr<BufferReplica>& from,
                             const std::shared_ptr<BufferReplica>& to, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The callback for the end of work on a replica: marks the replica as lost on an error.
  std::function<void(const absl::Status&)> LostUnlessOk(std::shared_ptr<BufferReplica> replica);
  absl::StatusOr<std::vector<uint32_t>> ReplicasToRead(const Buffer& buffer,
                                                       const model::BufferReadSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Enqueues a copy of a box of an array of `shape` to page-locked memory. The returned event has
  /// passed once the copy is complete.
  absl::StatusOr<SharedEvent> EnqueueReadLocked(const ReadPlace& source, const int64_t shape[3],
                                                int64_t element_bytes, const Box3& box,
                                                const std::shared_ptr<void>& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<model::BufferStatus> ApplyOnce(const model::BufferApplySpec& spec,
                                                const model::Caller& caller);
  void ListLocked(const BufferPtr& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Removes a buffer unless `may` refuses its present state. The caller runs the returned function
  /// after the turn, to notify watchers.
  absl::StatusOr<std::function<void()>> Remove(
      BufferTurn& turn, const std::string& name, const std::string& reason, const std::string& text,
      const std::function<absl::Status(const Buffer&)>& may);

  const Context context_;
  StreamOrdering order_;
  Mutex turn_mutex_;  // acquired before mutex_; one piece of work at a time takes its leases, is
                      // enqueued, and returns them
  Mutex mutex_;
  std::list<BufferPtr> buffers_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<std::string, BufferPtr> by_name_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> tombstones_
      ABSL_GUARDED_BY(mutex_);  // reason for its end, by name
  std::deque<std::pair<int64_t, std::string>> gone_order_
      ABSL_GUARDED_BY(mutex_);  // time and name of each; oldest first
  base::RequestIds requests_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> owned_bytes_ ABSL_GUARDED_BY(mutex_);  // being made
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  Totals totals_ ABSL_GUARDED_BY(mutex_);
  /// A watcher hears of the existing buffers before it hears of changes, and never of an older
  /// state of a buffer after a newer one, in whichever order the threads that made the changes
  /// arrive. Events therefore wait in a queue; one thread at a time takes them out and calls the
  /// watcher, without locks.
  class Watcher {
   public:
    Watcher(const model::Caller& caller, Told told) : caller_(caller), told_(std::move(told)) {}
    const model::Caller& caller() const { return caller_; }
    /// Reports the existing buffers, before any event of Tell.
    void Begin(const std::vector<model::BufferStatus>& now);
    void Tell(model::BufferEventKind kind, const model::BufferStatus& status,
              const std::string& text);

   private:
    struct Event {
      model::BufferEventKind kind;
      model::BufferStatus status;
      std::string text;
    };
    bool IsOldLocked(Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
    void Drain();

    const model::Caller caller_;
    const Told told_;
    Mutex mutex_;
    bool telling_ ABSL_GUARDED_BY(mutex_) =
        true;  // a thread is calling; at first the thread that called Watch
    std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
    std::map<std::string, uint64_t> told_revisions_ ABSL_GUARDED_BY(mutex_);
    std::deque<std::string> gone_ ABSL_GUARDED_BY(mutex_);  // oldest first
  };
  std::list<std::weak_ptr<Reader>> readers_ ABSL_GUARDED_BY(mutex_);  // large ones
  std::list<std::weak_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> draining_{false};
};

}  // namespace octavo::buffer
