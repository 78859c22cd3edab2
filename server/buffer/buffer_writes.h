#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/buffer_writer.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/frame_pool.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// Opens writes of clients: checks them against the buffer and takes their lease. What it is made
/// of must outlive its writers. Thread-safe.
class BufferWrites {
 public:
  BufferWrites(BufferTable& table, BufferTurns& turns, StreamOrdering& order,
               BufferWatchers& watchers, std::vector<std::shared_ptr<memory::FramePool>> frames)
      : table_(table),
        turns_(turns),
        order_(order),
        watchers_(watchers),
        frames_(std::move(frames)) {}

  absl::StatusOr<std::unique_ptr<BufferWriter>> Open(const model::BufferWriteSpec& spec,
                                                     const model::Caller& caller);

 private:
  /// The replicas that the write changes, as indices, if it may begin.
  absl::StatusOr<std::vector<size_t>> CheckTargets(const model::BufferWriteSpec& spec,
                                                   const BufferEntry& buffer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  BufferTable& table_;
  BufferTurns& turns_;
  StreamOrdering& order_;
  BufferWatchers& watchers_;
  const std::vector<std::shared_ptr<memory::FramePool>> frames_;  // by device
};

}  // namespace octavo::buffer
