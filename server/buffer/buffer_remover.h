#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/reason.h"
#include "server/buffer/buffer_reads.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/buffer_watchers.h"
#include "server/buffer/import_loan.h"
#include "server/buffer/stream_ordering.h"
#include "server/exports/export_store.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// How buffers go: a client destroys them, their time to live ends, or the client that lends their
/// memory goes. Thread-safe.
class BufferRemover {
 public:
  BufferRemover(BufferTable& table, BufferTurns& turns, StreamOrdering& order, BufferReads& reads,
                BufferWatchers& watchers, exports::ExportStore* exports)
      : table_(table),
        turns_(turns),
        order_(order),
        reads_(reads),
        watchers_(watchers),
        exports_(exports) {}

  /// FailedPrecondition (EXPORTED) if other processes map the buffer. With `detach` the buffer is
  /// destroyed anyway and its memory is detached.
  absl::Status Destroy(const std::string& name, const std::string& etag,
                       const std::string& lease_token, const model::Caller& caller, bool detach);
  /// Warns of buffers that expire soon, and removes the overdue ones that nobody is using.
  void Expire(int64_t now_ns);
  /// Removes an imported buffer whatever leases and work there are: leases end, and the memory is
  /// unmapped after the work that was enqueued. `text`: why, for those who ask later. Nothing
  /// happens if the buffer has gone before.
  void Revoke(const std::string& name, ImportEnd why, const std::string& text);

 private:
  /// Why a buffer goes.
  struct Going {
    Reason code = Reason::kNone;
    std::string text;                      // for people
    ImportEnd why = ImportEnd::kPeerGone;  // for the client that lends the memory
  };
  /// Removes a buffer unless `may` refuses its present state. The caller runs the returned function
  /// after the turn, to notify watchers.
  absl::StatusOr<std::function<void()>> Remove(
      BufferTurn& turn, const std::string& name, const Going& going,
      const std::function<absl::Status(const BufferEntry&)>& may);
  /// Ends the use of memory that a client lends: reads are cut, and the last reference, which
  /// unmaps it, goes after the work that is enqueued now.
  void LetGo(BufferPtr gone, ImportEnd why);

  BufferTable& table_;
  BufferTurns& turns_;
  StreamOrdering& order_;
  BufferReads& reads_;
  BufferWatchers& watchers_;
  exports::ExportStore* const exports_;
};

}  // namespace octavo::buffer
