#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/device/device.h"
#include "server/buffer/buffer_entry.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/piece_to_host.h"
#include "server/buffer/stream_ordering.h"

// Copies of whole replicas and of parts of them, each enqueued in the order of accesses. The caller
// holds the table's lock. A copy keeps the memory that it uses.
namespace octavo::buffer {

/// The memory from which one replica, or a volume, is read.
struct ReadPlace {
  int device = 0;
  const void* data = nullptr;
  std::shared_ptr<BufferReplica> replica;  // null for a volume, whose bytes do not change
  std::shared_ptr<const void> keep;
  uint64_t version = 0;  // of the replica when it was opened
  model::BufferState state = model::BufferState::kReady;
};

/// Copies from device to device, on a stream of the device of `to`. If the copy fails, `to` is
/// lost.
absl::Status ForwardReplica(BufferTable& table, StreamOrdering& order,
                            const std::shared_ptr<BufferReplica>& from,
                            const std::shared_ptr<BufferReplica>& to, int64_t bytes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mutex());

/// Into other memory of the same device. `fresh` gets version and state of `old`; it is lost if the
/// copy fails or if `old` is lost by then.
absl::Status CopyReplica(BufferTable& table, StreamOrdering& order,
                         const std::shared_ptr<BufferReplica>& old,
                         const std::shared_ptr<BufferReplica>& fresh, int64_t bytes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mutex());

/// A box of an array of `shape` to page-locked memory.
absl::StatusOr<PieceToHost> CopyBoxToHost(BufferTable& table, StreamOrdering& order,
                                          const ReadPlace& source, const int64_t shape[3],
                                          int64_t element_bytes, const Box3& box,
                                          std::shared_ptr<void> to)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mutex());

}  // namespace octavo::buffer
