#include "server/buffer/replica_update.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_errors.h"

namespace octavo::buffer {

absl::Status ReplicaUpdate::CheckVersion(const model::BufferWriteSpec& spec, size_t target,
                                         uint64_t version) {
  if (spec.if_version == 0 || version == spec.if_version) return absl::OkStatus();
  return WrongVersion(spec.name, static_cast<uint32_t>(target), version, spec.if_version);
}

absl::Status ReplicaUpdate::Begin(const session::LeaseTable::Guard& lease) {
  MutexLock lock(table_.mutex());
  // A slow client's lease may have ended since. Another client may hold one now, may be writing,
  // or may have destroyed the buffer.
  OCTAVO_RETURN_IF_ERROR(lease.Stands());
  if (table_.Find(spec_.name) == nullptr) {
    return WithInfo(absl::NotFoundError(absl::StrCat(spec_.name, " is gone")),
                    {.reason = Reason::kNoBuffer, .field = "name", .numbers = {}});
  }
  for (const size_t target :
       targets_) {  // under the same lease it may be written, or have been written since
    const BufferReplica& replica = *buffer_->replicas[target];
    if (replica.state == model::BufferState::kWriting) return BeingWritten(spec_.name);
    OCTAVO_RETURN_IF_ERROR(CheckVersion(spec_, target, replica.version));
  }
  std::vector<ReplicaBroadcast::Stop> stops;
  for (const size_t target : targets_) {
    BufferReplica& replica = *buffer_->replicas[target];
    OCTAVO_ASSIGN_OR_RETURN(const StreamRef stream, order_.Begin(replica.device));
    OCTAVO_RETURN_IF_ERROR(StreamOrdering::BeforeWrite(stream, replica.order));
    streams_.push_back(stream);
    stops.push_back(
        {.device = replica.device, .stream = stream, .memory = replica.memory.as<char>()});
  }
  OCTAVO_ASSIGN_OR_RETURN(ReplicaBroadcast broadcast,
                          ReplicaBroadcast::Create(&order_, std::move(stops)));
  broadcast_.emplace(std::move(broadcast));
  for (const size_t target : targets_) {
    BufferReplica& replica = *buffer_->replicas[target];
    was_partial_ |=
        replica.state == model::BufferState::kPartial || replica.state == model::BufferState::kLost;
    replica.state = model::BufferState::kWriting;
  }
  begun_ = true;
  return absl::OkStatus();
}

absl::StatusOr<SharedEvent> ReplicaUpdate::Upload(const void* from, int64_t at, int64_t bytes) {
  return broadcast_->Upload(from, static_cast<int64_t>(spec_.byte_offset) + at, bytes);
}

void ReplicaUpdate::End(model::BufferState state,
                        const std::vector<std::shared_ptr<const void>>& staging) {
  ended_ = true;
  const auto total = static_cast<int64_t>(spec_.total_bytes);
  MutexLock lock(table_.mutex());
  std::vector<std::shared_ptr<BufferReplica>> written;
  for (const size_t target : targets_) written.push_back(buffer_->replicas[target]);
  const uint64_t version = NewestVersion(*buffer_) + 1;
  const bool whole = spec_.byte_offset == 0 && total == buffer_->status.type.bytes();
  for (size_t i = 0; i < written.size(); ++i) {
    BufferReplica& replica = *written[i];
    std::vector<AccessTracker*> read;
    if (i > 0) read.push_back(&written[i - 1]->order);
    std::vector<std::shared_ptr<const void>> keep = staging;
    keep.insert(keep.end(), written.begin(), written.end());
    const absl::Status ended = order_.End(replica.device, streams_[i], read, {&replica.order},
                                          std::move(keep), table_.LostUnlessOk(written[i]));
    replica.state = !ended.ok() ? model::BufferState::kLost
                    : state == model::BufferState::kReady && was_partial_ && !whole
                        ? model::BufferState::kPartial
                        : state;
    if (state == model::BufferState::kReady) replica.version = version;
  }
  if (state == model::BufferState::kReady) {
    buffer_->status.sequence = table_.NextSequence();
    buffer_->status.origin.clear();
    table_.totals().uploaded_bytes += total;
    table_.totals().forwarded_bytes += total * static_cast<int64_t>(written.size() - 1);
  }
  table_.Touch(*buffer_);
}

}  // namespace octavo::buffer
