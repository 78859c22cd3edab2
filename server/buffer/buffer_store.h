#pragma once

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

#include "gpu/base/clock.h"
#include "gpu/device/device.h"
#include "server/buffer/buffer_exporter.h"
#include "server/buffer/buffer_importer.h"
#include "server/buffer/buffer_maker.h"
#include "server/buffer/buffer_reader.h"
#include "server/buffer/buffer_reads.h"
#include "server/buffer/buffer_remover.h"
#include "server/buffer/buffer_requests.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_totals.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/buffer_writer.h"
#include "server/buffer/buffer_writes.h"
#include "server/buffer/long_work.h"
#include "server/buffer/op_runner.h"
#include "server/buffer/replica_mover.h"
#include "server/buffer/replica_sync.h"
#include "server/buffer/stream_ordering.h"
#include "server/exports/export_store.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "server/model/buffer_types.h"
#include "server/session/lease.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {

// Verbs of buffers and leases. A verb that reads needs a shared lease; a verb that writes, moves or
// ends a buffer needs an exclusive one. It uses the caller's lease, by its token, or takes one of
// its own while it works (LeaseTable::Guard), so verbs exclude each other as leases do. A verb acts
// under the table's lock, after checking there that its lease still stands (Guard::Stands) and what
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
//   end of an import   -              -                 cannot be        -
//   relocation         waits          waits             what it is for   waits
//
//   (1) The holder of the exclusive lease under which it was exported decides. (2) Unless
//   detach_exports. (3) The memory is detached.
//
// Order of locks: BufferTurns, BufferTable, those of other stores (volume_store.h). With the turn,
// verbs that arrive together take their own leases one after the other instead of refusing each
// other. Callbacks to clients that wait for a lease or watch buffers run without any of these
// locks.

/// Client-created arrays, replicated over devices. Thread-safe. Calls that copy or allocate take
/// milliseconds and are meant for worker threads (Post). No call waits for a device, except
/// RunLong, MakeLong and those of BufferReader and BufferWriter.
///
/// Order: every piece of work is enqueued under one lock, that of the BufferTable, and numbered
/// (BufferStatus.sequence). On the device, the work waits for the last writers of its inputs and
/// for earlier readers and writers of its outputs. Clients see the same results as if all work ran
/// one by one in this order. Work in progress keeps its memory alive; a thread per device follows
/// the streams and releases it.
///
/// This class is where calls of clients come in. It owns the parts that do the work and connects
/// them (server/buffer/README.md); it answers retries, turns exceptions into errors, and counts the
/// calls that fail.
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
    handoff::FdSocket* handoff = nullptr;         // takes imports; null: none
    session::ClientSessions* sessions = nullptr;  // that imports may end with
    LoanBook::Limits import_limits;
  };
  explicit BufferStore(const Context& context);
  ~BufferStore();

  /// Of the server; buffers may be on the numbered ones.
  const base::DeviceNames& device_names() const { return maker_.names(); }

  /// Refuses new buffers and operations from now on (DRAINING).
  void BeginDrain() { requests_.BeginDrain(); }

  absl::StatusOr<model::BufferStatus> Create(const model::BufferSpec& spec,
                                             const model::Caller& caller);
  /// As BufferMaker::Check: the type of the buffer that `spec` asks for.
  absl::StatusOr<ArrayType> Check(const model::BufferSpec& spec,
                                  const model::Caller& caller) const {
    return maker_.Check(spec, caller);
  }
  /// A buffer that the server fills itself and then publishes. As BufferMaker::Draft; DRAINING does
  /// not refuse it.
  absl::StatusOr<std::unique_ptr<BufferDraft>> Draft(const model::BufferSpec& spec,
                                                     const model::Caller& caller, int device,
                                                     memory::Ledger::ChargeId charge);
  /// Clients see the buffer from now on. Work on its memory has passed. Returns its name.
  std::string Publish(BufferDraft& draft);
  absl::StatusOr<model::BufferStatus> Get(const std::string& name, const model::Caller& caller) {
    return table_.Get(name, caller);
  }
  /// Oldest first; without others' private buffers.
  std::vector<model::BufferStatus> List(const model::Caller& caller, uint64_t after = 0,
                                        size_t most = std::numeric_limits<size_t>::max()) {
    return table_.List(caller, after, most);
  }
  /// As BufferTable::MaySee.
  bool MaySee(const std::string& name, const model::Caller& caller) {
    return table_.MaySee(name, caller);
  }
  struct Update {
    std::string name, etag;
    bool set_labels = false, set_ttl = false;
    std::map<std::string, std::string> labels;
    double ttl_seconds = 0;
  };
  absl::StatusOr<model::BufferStatus> Change(const Update& update, const model::Caller& caller);
  /// As BufferRemover::Destroy; OK for a buffer that is remembered to be gone.
  absl::Status Destroy(const std::string& name, const std::string& etag,
                       const std::string& lease_token, const model::Caller& caller,
                       bool detach = false);
  /// As ReplicaSync::Sync.
  absl::StatusOr<model::BufferStatus> Sync(const std::string& name, uint32_t source,
                                           const std::vector<uint32_t>& targets,
                                           const std::string& lease_token,
                                           const model::Caller& caller);
  absl::StatusOr<model::BufferStatus> Apply(const model::BufferApplySpec& spec,
                                            const model::Caller& caller);
  /// A program into a buffer, as ApplyOp does it with a chain.
  absl::StatusOr<model::BufferStatus> RunProgram(const model::BufferProgramSpec& spec,
                                                 const model::Caller& caller);
  /// Work that may take seconds, on the calling thread. It ends with DRAINING when the server
  /// drains.
  absl::Status RunLong(LongWorkSpec spec, const model::Caller& caller,
                       const std::function<absl::Status(LongWork&)>& work);
  /// The same for work that makes a buffer (LongWork::Make): once for each request id.
  absl::StatusOr<model::BufferStatus> MakeLong(
      LongWorkSpec spec, const model::Caller& caller,
      const std::function<absl::StatusOr<model::BufferStatus>(LongWork&)>& work);
  /// The most elements of an array that a client asks for.
  int64_t most_elements() const { return maker_.limits().most_elements; }
  absl::StatusOr<std::unique_ptr<BufferWriter>> OpenWrite(const model::BufferWriteSpec& spec,
                                                          const model::Caller& caller);
  absl::StatusOr<std::shared_ptr<BufferReader>> OpenRead(const model::BufferReadSpec& spec,
                                                         const model::Caller& caller);
  /// As LeaseTable::Acquire, for a buffer that exists when the lease is granted; NotFound
  /// (NO_BUFFER), PermissionDenied (NOT_OWNER). `done` is called without locks.
  uint64_t AcquireLease(const session::LeaseRequest& request, const model::Caller& caller,
                        session::LeaseTable::Done done);
  /// `done` is called once, from a thread of the store, when all work enqueued on the buffer so far
  /// has finished.
  absl::Status Wait(const std::string& name, const model::Caller& caller,
                    std::function<void(absl::StatusOr<model::BufferStatus>)> done);
  /// As ReplicaMover::Relocate.
  absl::Status Relocate(const exports::ExportStore::Overdue& what) { return mover_.Relocate(what); }
  /// As BufferExporter::Export.
  absl::StatusOr<exports::ExportTicket> Export(const model::ExportSpec& spec,
                                               const model::Caller& caller,
                                               const exports::ExportPeer& peer) {
    return exporter_.Export(spec, caller, peer);
  }
  /// As BufferImporter::Issue.
  absl::StatusOr<ImportTicket> Import(const model::BufferImportSpec& spec,
                                      const model::Caller& caller, std::optional<uid_t> uid);
  /// Memory that clients lend now, by device, until it is unmapped.
  std::map<int, int64_t> LentBytes() { return importer_.Count().bytes_on; }
  /// As BufferImporter::EndSessions.
  void EndSessions(const std::set<std::string>& sessions) { importer_.EndSessions(sessions); }
  /// Calls `told` for every buffer now and for each change, on a thread of the store, until the
  /// returned handle is destroyed.
  std::shared_ptr<void> Watch(const model::Caller& caller, BufferWatchers::Told told);

  BufferTotals Count();
  /// Expires overdue buffers and cuts off readers that take nothing. Call about twice a second.
  void Housekeep();
  /// Returns once watchers have heard of all changes made before (for tests).
  void FlushWatches() { watchers_.Flush(); }
  /// Returns once no device has work in progress (for tests).
  absl::Status Drain();

 private:
  /// Runs `make` once for each request id and tells watchers of the result as `kind`; a retry gets
  /// the same buffer.
  absl::StatusOr<model::BufferStatus> Once(
      const std::string& request_id, const std::string& request_digest, const model::Caller& caller,
      base::ChangeKind kind, const std::function<absl::StatusOr<model::BufferStatus>()>& make);
  absl::StatusOr<std::unique_ptr<LongWork>> BeginLong(LongWorkSpec spec,
                                                      const model::Caller& caller);
  /// Counts the answer to a client if it is an error.
  template <class T>
  absl::StatusOr<T> Counted(absl::StatusOr<T> answer) {
    table_.CountRefusal(answer.status());
    return answer;
  }

  // In the order of construction; the parts use those before them.
  StreamOrdering order_;
  BufferTable table_;
  BufferTurns turns_;
  BufferWatchers watchers_;
  BufferRequests requests_;
  BufferMaker maker_;
  OpRunner operations_;
  const LongWorkEnvironment long_work_;
  BufferReads reads_;
  BufferWrites writes_;
  ReplicaSync sync_;
  ReplicaMover mover_;
  BufferExporter exporter_;
  BufferRemover remover_;
  BufferImporter importer_;
};

}  // namespace octavo::buffer
