#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/session/lease.h"

namespace octavo::buffer {

/// The turns of all work on buffers, and the leases that it takes. One piece of work at a time
/// takes its leases, is enqueued, and returns them. The lock of the turn comes before that of the
/// BufferTable.
struct BufferTurns {
  explicit BufferTurns(session::LeaseTable* lease_table) : leases(lease_table) {}
  session::LeaseTable* const leases;
  Mutex mutex;
};

/// The turn of one piece of work on buffers, with its leases. The leases are returned with the
/// turn, so that the next piece of work finds them free; waiters for a lease are notified after the
/// turn.
class BufferTurn {
 public:
  explicit BufferTurn(BufferTurns& turns)
      : leases_(turns.leases), lock_(std::in_place, turns.mutex) {}
  ~BufferTurn() {
    for (session::LeaseTable::Guard& guard : guards_) guard.Done(&told_);
    lock_.reset();
    session::LeaseTable::Tell(told_);
  }
  BufferTurn(const BufferTurn&) = delete;
  BufferTurn& operator=(const BufferTurn&) = delete;

  /// As LeaseTable::Enter.
  absl::Status Enter(const std::string& buffer, session::LeaseMode mode, const std::string& token,
                     uint64_t fence, const std::string& holder) {
    OCTAVO_ASSIGN_OR_RETURN(auto guard, leases_->Enter(buffer, mode, token, fence, holder, &told_));
    guards_.push_back(std::move(guard));
    return absl::OkStatus();
  }
  /// OK while all of its leases stand (Guard::Stands).
  absl::Status Stands() const {
    for (const session::LeaseTable::Guard& guard : guards_) OCTAVO_RETURN_IF_ERROR(guard.Stands());
    return absl::OkStatus();
  }
  /// Takes over the last lease, for work that continues after the turn.
  session::LeaseTable::Guard Keep() {
    session::LeaseTable::Guard guard = std::move(guards_.back());
    guards_.pop_back();
    return guard;
  }
  /// The buffer is gone.
  void Forget(const std::string& buffer) { leases_->Forget(buffer, &told_); }

 private:
  session::LeaseTable* const leases_;
  std::optional<MutexLock> lock_;
  std::vector<session::LeaseTable::Guard> guards_;
  session::LeaseTable::Told told_;
};

}  // namespace octavo::buffer
