#include "server/buffer/replica_sync.h"

#include <memory>

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"
#include "server/buffer/replica_copies.h"

namespace octavo::buffer {

absl::Status ReplicaSync::Enqueue(BufferEntry& buffer, uint32_t source,
                                  const std::vector<uint32_t>& targets) {
  const size_t count = buffer.replicas.size();
  if (source >= count) return BadReplica("source", source, count);
  std::vector<size_t> to;
  for (const uint32_t target : targets) {
    if (target >= count) return BadReplica("targets", target, count);
    if (target != source) to.push_back(target);
  }
  for (size_t i = 0; targets.empty() && i < count; ++i) {
    if (i != source) to.push_back(i);
  }
  OCTAVO_RETURN_IF_ERROR(table_.CheckReadable(buffer, source, false));
  // Forwards along the devices: each copies from the previous one.
  std::shared_ptr<BufferReplica> from = buffer.replicas[source];
  const int64_t bytes = buffer.status.type.bytes();
  for (const size_t target : to) {
    const auto& replica = buffer.replicas[target];
    if (!table_.IsHealthy(replica->device))
      OCTAVO_RETURN_IF_ERROR(table_.CheckReadable(buffer, target, true));
    if (replica->state == model::BufferState::kWriting)
      return BeingWritten(buffer.status.name);      // under a lease that ended meanwhile
    replica->state = model::BufferState::kPartial;  // unless all of the following works
    OCTAVO_RETURN_IF_ERROR(ForwardReplica(table_, order_, from, replica, bytes));
    replica->version = from->version;
    replica->state = model::BufferState::kReady;
    from = replica;
  }
  return absl::OkStatus();
}

absl::StatusOr<model::BufferStatus> ReplicaSync::Sync(const std::string& name, uint32_t source,
                                                      const std::vector<uint32_t>& targets,
                                                      const std::string& lease_token,
                                                      const model::Caller& caller) {
  {
    MutexLock lock(table_.mutex());
    OCTAVO_RETURN_IF_ERROR(table_.FindToChange(name, caller).status());
  }
  BufferPtr buffer;
  model::BufferStatus status;
  {
    BufferTurn turn(turns_);
    OCTAVO_RETURN_IF_ERROR(
        turn.Enter(name, session::LeaseMode::kExclusive, lease_token, 0, "SyncReplicas"));
    MutexLock lock(table_.mutex());
    OCTAVO_RETURN_IF_ERROR(turn.Stands());
    OCTAVO_ASSIGN_OR_RETURN(buffer, table_.FindToChange(name, caller));
    OCTAVO_RETURN_IF_ERROR(BufferTable::CheckWritable(*buffer));
    OCTAVO_RETURN_IF_ERROR(Enqueue(*buffer, source, targets));
    buffer->status.sequence = table_.NextSequence();
    table_.Touch(*buffer);
    status = table_.StatusOf(*buffer);
  }
  watchers_.Tell(base::ChangeKind::kChanged, status, buffer->key, "");
  return status;
}

}  // namespace octavo::buffer
