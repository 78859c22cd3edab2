#include "server/buffer/buffer_exporter.h"

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"

namespace octavo::buffer {

absl::StatusOr<exports::ExportTicket> BufferExporter::Export(const model::ExportSpec& spec,
                                                             const model::Caller& caller,
                                                             const exports::ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(exports_->Admit(peer));
  {
    MutexLock lock(table_.mutex());
    OCTAVO_RETURN_IF_ERROR(table_.FindToChange(spec.name, caller).status());
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
    BufferTurn turn(turns_);
    OCTAVO_RETURN_IF_ERROR(turn.Enter(spec.name, session::LeaseMode::kExclusive, spec.lease_token,
                                      spec.lease_fence, "Export"));
    guard = turn.Keep();
    MutexLock lock(table_.mutex());
    OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table_.FindToChange(spec.name, caller));
    const size_t count = buffer->replicas.size();
    if (spec.replica >= count) return BadReplica("replica", spec.replica, count);
    OCTAVO_RETURN_IF_ERROR(table_.CheckReadable(*buffer, spec.replica, false));
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
              .keep = replica,
              .owner = buffer->status.owner,
              .holder = HolderOf(buffer->status)};
    OCTAVO_RETURN_IF_ERROR(exports_->Describe(replica->memory, &memory));
    last_write = replica->order.last_write;
  }
  // Waits here, on a worker, so that the process that maps the memory needs no event of the server.
  if (last_write != nullptr) OCTAVO_RETURN_IF_ERROR(last_write->Synchronize());
  const std::shared_ptr<const void> replica = memory.keep;
  return exports_->Issue(
      std::move(memory), peer, [&](const std::function<absl::Status()>& make) -> absl::Status {
        MutexLock lock(table_.mutex());
        OCTAVO_RETURN_IF_ERROR(guard.Stands());
        OCTAVO_ASSIGN_OR_RETURN(const BufferPtr buffer, table_.Find(spec.name, caller));
        if (buffer->replicas[spec.replica] != replica) {
          return WithInfo(
              absl::AbortedError(
                  absl::StrCat(spec.name, " has moved to other memory meanwhile; ask again")),
              {.reason = Reason::kMoving, .field = "name", .numbers = {{"retryable", "true"}}});
        }
        return make();
      });
}

}  // namespace octavo::buffer
