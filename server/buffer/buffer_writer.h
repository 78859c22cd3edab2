#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/replica_update.h"
#include "server/buffer/write_staging.h"
#include "server/model/buffer_types.h"
#include "server/session/lease.h"

namespace octavo::buffer {

/// One write: Chunks in order, then Finish. A writer destroyed before Finish counts as broken off.
/// One thread at a time; Chunk may wait for the upload of earlier ones.
class BufferWriter {
 public:
  static constexpr int64_t kMostChunk = WriteStaging::kMostChunk;

  /// `table` and `watchers` must outlive the writer. `lease`: an exclusive one of the buffer.
  /// `crc32c`: the checksum of all bytes, if the client gave one.
  BufferWriter(BufferTable& table, BufferWatchers& watchers, WriteStaging staging,
               ReplicaUpdate update, std::optional<uint32_t> crc32c,
               session::LeaseTable::Guard lease);
  ~BufferWriter();
  BufferWriter(const BufferWriter&) = delete;
  BufferWriter& operator=(const BufferWriter&) = delete;

  absl::Status Chunk(const std::vector<std::pair<const char*, size_t>>& pieces);
  absl::StatusOr<model::BufferStatus> Finish();

 private:
  absl::StatusOr<model::BufferStatus> End();

  BufferTable& table_;
  BufferWatchers& watchers_;
  WriteStaging staging_;
  ReplicaUpdate update_;
  const std::optional<uint32_t> crc32c_;
  session::LeaseTable::Guard lease_;
  const WriteStaging::Upload upload_;  // begins the update with the first block
};

}  // namespace octavo::buffer
