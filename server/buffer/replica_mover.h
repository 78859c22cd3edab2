#pragma once

#include "absl/status/status.h"

#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/stream_ordering.h"
#include "server/exports/export_store.h"
#include "server/memory/ledger.h"

namespace octavo::buffer {

/// Moves replicas out of memory that another process keeps. Thread-safe.
class ReplicaMover {
 public:
  ReplicaMover(BufferTable& table, BufferTurns& turns, StreamOrdering& order,
               memory::Ledger* ledger)
      : table_(table), turns_(turns), order_(order), ledger_(ledger) {}

  /// Copies a replica into new memory. Aborted (LEASED) while a lease on it exists or it is being
  /// written, ResourceExhausted (DEVICE_FULL), NotFound. Call from a thread that may wait; the copy
  /// itself is enqueued.
  absl::Status Relocate(const exports::ExportStore::Overdue& what);

 private:
  BufferTable& table_;
  BufferTurns& turns_;
  StreamOrdering& order_;
  memory::Ledger* const ledger_;
};

}  // namespace octavo::buffer
