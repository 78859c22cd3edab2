#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/buffer_watchers.h"
#include "server/exports/export_store.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// How buffers go: a client destroys them, or their time to live ends. Thread-safe.
class BufferRemover {
 public:
  BufferRemover(BufferTable& table, BufferTurns& turns, BufferWatchers& watchers,
                exports::ExportStore* exports)
      : table_(table), turns_(turns), watchers_(watchers), exports_(exports) {}

  /// FailedPrecondition (EXPORTED) if other processes map the buffer. With `detach` the buffer is
  /// destroyed anyway and its memory is detached.
  absl::Status Destroy(const std::string& name, const std::string& etag,
                       const std::string& lease_token, const model::Caller& caller, bool detach);
  /// Warns of buffers that expire soon, and removes the overdue ones that nobody is using.
  void Expire(int64_t now_ns);

 private:
  /// Removes a buffer unless `may` refuses its present state. The caller runs the returned function
  /// after the turn, to notify watchers.
  absl::StatusOr<std::function<void()>> Remove(
      BufferTurn& turn, const std::string& name, Reason code, const std::string& text,
      const std::function<absl::Status(const BufferEntry&)>& may);

  BufferTable& table_;
  BufferTurns& turns_;
  BufferWatchers& watchers_;
  exports::ExportStore* const exports_;
};

}  // namespace octavo::buffer
