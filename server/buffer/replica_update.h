#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/buffer_entry.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/replica_broadcast.h"
#include "server/buffer/stream_ordering.h"
#include "server/model/buffer_types.h"
#include "server/session/lease.h"

namespace octavo::buffer {

/// The replicas that one write changes, from their first byte to their new version. They belong to
/// the write from Begin to End, which must follow. One thread at a time.
class ReplicaUpdate {
 public:
  /// Aborted (VERSION) if the client wants another version of this replica.
  static absl::Status CheckVersion(const model::BufferWriteSpec& spec, size_t target,
                                   uint64_t version);

  /// `table` and `order` must outlive this object. `targets`: indices of replicas.
  ReplicaUpdate(BufferTable& table, StreamOrdering& order, BufferPtr buffer,
                std::vector<size_t> targets, model::BufferWriteSpec spec)
      : table_(table),
        order_(order),
        buffer_(std::move(buffer)),
        targets_(std::move(targets)),
        spec_(std::move(spec)) {}

  const BufferEntry& buffer() const { return *buffer_; }
  bool begun() const { return begun_; }
  bool ended() const { return ended_; }
  /// The replicas are this write's from here on. FailedPrecondition (LEASE_LOST), NotFound
  /// (NO_BUFFER), Aborted (LEASED, VERSION).
  absl::Status Begin(const session::LeaseTable::Guard& lease);
  /// Uploads to the first target; each further target copies the bytes from the previous one. `at`:
  /// byte of the write.
  absl::StatusOr<SharedEvent> Upload(const void* from, int64_t at, int64_t bytes);
  /// The end of the write: `state` is READY with all bytes, or PARTIAL. Work in flight keeps the
  /// `staging`.
  void End(model::BufferState state, const std::vector<std::shared_ptr<const void>>& staging);

 private:
  BufferTable& table_;
  StreamOrdering& order_;
  const BufferPtr buffer_;
  const std::vector<size_t> targets_;
  const model::BufferWriteSpec spec_;
  std::vector<StreamRef> streams_;  // of each target
  std::optional<ReplicaBroadcast> broadcast_;
  bool begun_ = false, ended_ = false, was_partial_ = false;
};

}  // namespace octavo::buffer
