#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/buffer_store.h"

namespace octavo::buffer {

absl::StatusOr<exports::ExportTicket> BufferStore::Export(const model::ExportSpec& spec,
                                                          const model::Caller& caller,
                                                          const exports::ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(context_.exports->Admit(peer));
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(FindLocked(spec.name, caller).status());
  }
  if (spec.lease_token.empty()) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        spec.name,
                        " is handed over only to a client that has an exclusive lease of "
                        "it (AcquireLease); otherwise others may write to it")),
                    {.reason = Reason::kExportLease, .field = "lease_token", .numbers = {}});
  }
  exports::ExportedMemory memory;
  SharedEvent last_write;
  session::LeaseTable::Guard guard;
  {
    BufferTurn turn(turn_mutex_, context_.leases);
    OCTAVO_RETURN_IF_ERROR(turn.Enter(spec.name, session::LeaseMode::kExclusive, spec.lease_token,
                                      spec.lease_fence, "Export"));
    guard = turn.Keep();
    MutexLock lock(mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(spec.name, caller));
    const size_t count = buffer->replicas.size();
    if (spec.replica >= count) return BadReplica("replica", spec.replica, count);
    OCTAVO_RETURN_IF_ERROR(CheckReadable(*buffer, spec.replica, false));
    const auto& replica = buffer->replicas[spec.replica];
    memory = {.name = spec.name,
              .replica = spec.replica,
              .device = replica->device,
              .device_uuid = {},
              .backend = {},
              .memory = {},
              .type = buffer->status.type,
              .version = replica->version,
              .digest = {},
              .charge = replica->charge,
              .keep = replica};
    OCTAVO_RETURN_IF_ERROR(context_.exports->Describe(replica->memory, &memory));
    last_write = replica->order.last_write;
  }
  // Waits here, on a worker, so that the process that maps the memory needs no event of the server.
  if (last_write != nullptr) OCTAVO_RETURN_IF_ERROR(last_write->Synchronize());
  const std::shared_ptr<const void> replica = memory.keep;
  return context_.exports->Issue(
      std::move(memory), peer, [&](const std::function<absl::Status()>& make) -> absl::Status {
        MutexLock lock(mutex_);
        OCTAVO_RETURN_IF_ERROR(guard.Stands());
        OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, FindLocked(spec.name, caller));
        if (buffer->replicas[spec.replica] != replica) {
          return WithInfo(
              absl::AbortedError(
                  absl::StrCat(spec.name, " has moved to other memory meanwhile; ask again")),
              {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
        }
        return make();
      });
}

absl::Status BufferStore::Relocate(const exports::ExportStore::Overdue& what) {
  BufferTurn turn(turn_mutex_, context_.leases);
  OCTAVO_RETURN_IF_ERROR(turn.Enter(what.of, session::LeaseMode::kExclusive, "", 0, "the server"));
  std::shared_ptr<BufferReplica> old;
  int64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    const auto it = by_name_.find(what.of);
    const size_t index = what.replica;
    if (it == by_name_.end() || index >= it->second->replicas.size() ||
        it->second->replicas[index]->charge != what.charge) {
      return absl::NotFoundError(absl::StrCat(what.of, " has no such memory any more"));
    }
    old = it->second->replicas[index];
    if (old->state == model::BufferState::kWriting)
      return BeingWritten(what.of);  // under a lease that ended meanwhile
    bytes = it->second->status.type.bytes();
  }
  auto fresh = std::make_shared<BufferReplica>();
  OCTAVO_ASSIGN_OR_RETURN(
      const auto charges,
      context_.ledger->Reserve(old->device, what.of, "",
                               {{.what = "buffer",
                                 .bytes = ClientMemory::Bytes(std::max<int64_t>(bytes, 256)),
                                 .count = 1}},
                               nullptr));
  fresh->ledger = context_.ledger;
  fresh->charge = charges.front();
  fresh->device = old->device;
  context_.ledger->Move(fresh->charge, memory::ChargeKind::kBuffer, what.of);
  OCTAVO_ASSIGN_OR_RETURN(
      fresh->memory,
      ClientMemory::Allocate(*context_.devices[static_cast<size_t>(old->device)], bytes));
  MutexLock lock(mutex_);
  const auto it = by_name_.find(what.of);
  if (it == by_name_.end()) return absl::NotFoundError(absl::StrCat(what.of, " is gone"));
  OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(old->device));
  absl::Status copied = StreamOrdering::BeforeRead(stream, old->order);
  if (copied.ok())
    copied = order_.device(old->device)
                 .CopyOnDevice(stream, fresh->memory.data(), old->memory.data(), bytes);
  // Enqueued work uses the memory, so it is kept even if a later step failed. If a pending write to
  // the old memory fails, its contents are lost in the new memory, too.
  const absl::Status ended = order_.End(old->device, stream, {&old->order}, {&fresh->order},
                                        {old, fresh}, [this, old, fresh](const absl::Status& s) {
                                          MutexLock lost(mutex_);
                                          if (!s.ok() || old->state == model::BufferState::kLost)
                                            fresh->state = model::BufferState::kLost;
                                        });
  OCTAVO_RETURN_IF_ERROR(copied);
  OCTAVO_RETURN_IF_ERROR(ended);
  fresh->version = old->version;
  fresh->state = old->state;
  it->second->replicas[what.replica] = fresh;
  TouchLocked(*it->second);
  return absl::OkStatus();
}

}  // namespace octavo::buffer
