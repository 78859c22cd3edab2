#pragma once

#include "absl/status/statusor.h"

#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/exports/export_store.h"
#include "server/model/buffer_types.h"

namespace octavo::buffer {

/// Hands the memory of buffers to other processes. Thread-safe.
class BufferExporter {
 public:
  BufferExporter(BufferTable& table, BufferTurns& turns, exports::ExportStore* exports)
      : table_(table), turns_(turns), exports_(exports) {}

  /// Issues a ticket for the memory of a replica under the caller's exclusive lease; waits for its
  /// last write. FailedPrecondition (EXPORT_LEASE), and the errors of ExportStore. Call from a
  /// thread that may wait.
  absl::StatusOr<exports::ExportTicket> Export(const model::ExportSpec& spec,
                                               const model::Caller& caller,
                                               const exports::ExportPeer& peer);

 private:
  BufferTable& table_;
  BufferTurns& turns_;
  exports::ExportStore* const exports_;
};

}  // namespace octavo::buffer
