#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/stream_ordering.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// SyncReplicas: copies one replica of a buffer to others. Thread-safe.
class ReplicaSync {
 public:
  ReplicaSync(BufferTable& table, BufferTurns& turns, StreamOrdering& order,
              BufferWatchers& watchers)
      : table_(table), turns_(turns), order_(order), watchers_(watchers) {}

  /// `targets`: empty = all others.
  absl::StatusOr<model::BufferStatus> Sync(const std::string& name, uint32_t source,
                                           const std::vector<uint32_t>& targets,
                                           const std::string& lease_token,
                                           const model::Caller& caller);

 private:
  absl::Status Enqueue(BufferEntry& buffer, uint32_t source, const std::vector<uint32_t>& targets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());

  BufferTable& table_;
  BufferTurns& turns_;
  StreamOrdering& order_;
  BufferWatchers& watchers_;
};

}  // namespace octavo::buffer
