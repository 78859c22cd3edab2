#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/buffer_errors.h"
#include "server/engine/buffer_store.h"

namespace octavo::engine {

absl::StatusOr<ExportTicket> BufferStore::Export(const ExportSpec& spec, const Caller& caller, const ExportPeer& peer) {
  OCTAVO_RETURN_IF_ERROR(exports_.Admit(peer));
  if (absl::StartsWith(spec.name, "volumes/")) {
    OCTAVO_ASSIGN_OR_RETURN(ExportedMemory memory, exports_.OfVolume(spec.name, spec.replica));
    return exports_.Issue(std::move(memory), peer);
  }
  {
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(FindLocked(spec.name, caller).status());
  }
  if (spec.lease_token.empty()) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        spec.name, " can be handed over to who has an exclusive lease of it only (AcquireLease); others may write to it")),
                    {.reason = "EXPORT_LEASE", .field = "lease_token", .numbers = {}});
  }
  ExportedMemory memory;
  SharedEvent last_write;
  {
    MutexLock turn(turn_mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const auto guard, context_.leases->Enter(spec.name, LeaseMode::kExclusive, spec.lease_token, spec.lease_fence, "Export"));
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
    OCTAVO_RETURN_IF_ERROR(exports_.Describe(replica->memory, &memory));
    last_write = replica->order.last_write;
  }
  // Here, on a worker: whoever maps it needs no event of ours.
  if (last_write != nullptr) OCTAVO_RETURN_IF_ERROR(last_write->Synchronize());
  return exports_.Issue(std::move(memory), peer);
}

}  // namespace octavo::engine
