#include "server/buffer/buffer_writer.h"

#include "gpu/base/status.h"

namespace octavo::buffer {

BufferWriter::BufferWriter(BufferTable& table, BufferWatchers& watchers, WriteStaging staging,
                           ReplicaUpdate update, std::optional<uint32_t> crc32c,
                           session::LeaseTable::Guard lease)
    : table_(table),
      watchers_(watchers),
      staging_(std::move(staging)),
      update_(std::move(update)),
      crc32c_(crc32c),
      lease_(std::move(lease)),
      upload_([this](const void* from, int64_t at, int64_t bytes) -> absl::StatusOr<SharedEvent> {
        if (!update_.begun()) OCTAVO_RETURN_IF_ERROR(update_.Begin(lease_));
        return update_.Upload(from, at, bytes);
      }) {}

BufferWriter::~BufferWriter() {
  if (update_.begun() && !update_.ended())
    update_.End(model::BufferState::kPartial, staging_.Release());
  lease_.Done();
}

absl::Status BufferWriter::Chunk(const std::vector<std::pair<const char*, size_t>>& pieces) {
  absl::Status answer = staging_.Take(pieces, upload_);
  table_.CountRefusal(answer);
  return answer;
}

absl::StatusOr<model::BufferStatus> BufferWriter::Finish() {
  auto answer = End();
  table_.CountRefusal(answer.status());
  return answer;
}

absl::StatusOr<model::BufferStatus> BufferWriter::End() {
  OCTAVO_RETURN_IF_ERROR(staging_.Finish(crc32c_, upload_));
  update_.End(model::BufferState::kReady, staging_.Release());
  lease_.Done();
  model::BufferStatus status;
  {
    MutexLock lock(table_.mutex());
    status = table_.StatusOf(update_.buffer());
  }
  watchers_.Tell(base::ChangeKind::kChanged, status, update_.buffer().key, "");
  return status;
}

}  // namespace octavo::buffer
