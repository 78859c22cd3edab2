#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/buffer/box_walk.h"
#include "server/buffer/buffer_reader.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/piece_to_host.h"
#include "server/buffer/replica_copies.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/frame_pool.h"
#include "server/session/lease.h"

namespace octavo::buffer {

/// Where readers get what they need.
struct ReadEnvironment {
  BufferTable& table;
  StreamOrdering& order;
  std::vector<std::shared_ptr<memory::FramePool>> frames;  // by device
  double slow_reader_seconds = 30;
};

/// A read that is copied piece by piece, one piece ahead of the client. It keeps its shared lease
/// until the last piece is copied or the client is too slow.
class LongReader final : public BufferReader {
 public:
  /// `environment` must outlive the reader. `guard`: the lease; empty for a volume.
  LongReader(const ReadEnvironment& environment, About about, std::vector<ReadPlace> sources,
             const BoxWalk& walk, session::LeaseTable::Guard guard);
  absl::StatusOr<model::Bytes> Next(int64_t max_bytes) override;
  /// Releases the buffer if the client has read nothing for too long.
  void CutIfSlow(int64_t now_ns);
  /// Releases the buffer if it reads this replica.
  void LetGo(const BufferReplica& replica);

 private:
  /// What the reader uses of others until it ends: the sources and the lease. The end of a lease
  /// calls its waiters back, and the end of a source may free memory: both only without the lock.
  struct Lent {
    std::vector<ReadPlace> sources;
    session::LeaseTable::Guard guard;
  };
  static absl::Status Lost();
  /// Starts the copy of the next piece. Moves the lease to `ended` when the last piece is copied;
  /// the caller destroys it after it has released the lock.
  absl::Status Copy(int64_t max_bytes, Lent* ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ReadEnvironment& environment_;
  Mutex mutex_;  // before the table's
  Lent lent_ ABSL_GUARDED_BY(mutex_);
  BoxWalk walk_ ABSL_GUARDED_BY(mutex_);
  PieceToHost ahead_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;   // too slow
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;  // the memory went before all was copied
};

}  // namespace octavo::buffer
