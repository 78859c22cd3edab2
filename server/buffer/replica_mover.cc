#include "server/buffer/replica_mover.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/replica_copies.h"

namespace octavo::buffer {

absl::Status ReplicaMover::Relocate(const exports::ExportStore::Overdue& what) {
  BufferTurn turn(turns_);
  OCTAVO_RETURN_IF_ERROR(turn.Enter(what.of, session::LeaseMode::kExclusive, "", 0, "the server"));
  std::shared_ptr<BufferReplica> old;
  int64_t bytes = 0;
  std::string holder;
  {
    MutexLock lock(table_.mutex());
    const BufferPtr buffer = table_.Find(what.of);
    const size_t index = what.replica;
    if (buffer == nullptr || index >= buffer->replicas.size() ||
        buffer->replicas[index]->charge != what.charge) {
      return absl::NotFoundError(absl::StrCat(what.of, " has no such memory any more"));
    }
    old = buffer->replicas[index];
    if (old->state == model::BufferState::kWriting)
      return BeingWritten(what.of);  // under a lease that ended meanwhile
    bytes = buffer->status.type.bytes();
    holder = HolderOf(buffer->status);
  }
  OCTAVO_ASSIGN_OR_RETURN(const auto fresh,
                          ReserveReplica(ledger_, old->device, holder, bytes, nullptr));
  OCTAVO_ASSIGN_OR_RETURN(fresh->memory, ClientMemory::Allocate(order_.device(old->device), bytes));
  MutexLock lock(table_.mutex());
  const BufferPtr buffer = table_.Find(what.of);
  if (buffer == nullptr) return absl::NotFoundError(absl::StrCat(what.of, " is gone"));
  OCTAVO_RETURN_IF_ERROR(CopyReplica(table_, order_, old, fresh, bytes));
  ledger_->SetPayer({fresh->charge}, buffer->status.owner);
  buffer->replicas[what.replica] = fresh;
  table_.Touch(*buffer);
  return absl::OkStatus();
}

}  // namespace octavo::buffer
