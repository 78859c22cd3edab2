#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/base/callback_handle.h"
#include "server/job/job.h"
#include "server/model/status_types.h"
#include "server/operation/operation.h"

namespace octavo::engine {

/// Notifies watchers of scans (or jobs, or operations): at once on a change of state, within 50 ms
/// of any other change (Status::event_count), and twice a second. One thread serves all watchers
/// and waiters. It looks at each name once a turn, however many watch it. There are at most kMost
/// of them, because all wait for the same thread.
template <class Status>
class StatusWatches {
 public:
  static constexpr size_t kMost = 4096;

  /// `get` looks up the status by name.
  explicit StatusWatches(std::function<absl::StatusOr<Status>(const std::string&)> get);
  ~StatusWatches();
  /// `callback` is called until the final state, or once with the error of `get` if the scan or job
  /// no longer exists, or with ResourceExhausted (BUSY).
  std::unique_ptr<base::Handle> Add(const std::string& name,
                                    std::function<void(const absl::StatusOr<Status>&)> callback);
  /// `done` is called once: with the final status, or with the status at `until` (nothing = no
  /// limit), or with the error of `get`, or with ResourceExhausted (BUSY). `over` (must be short)
  /// says that the waiter has gone; `done` is not called then, nor after Stop. `place`: of
  /// TakePlace; with one, there is no BUSY.
  void Wait(const std::string& name, std::optional<std::chrono::steady_clock::time_point> until,
            std::function<void(const absl::StatusOr<Status>&)> done, std::function<bool()> over,
            std::shared_ptr<void> place = nullptr);
  /// A place among the kMost, until it is used or its last reference ends: for whoever begins work
  /// and then waits for it, so that no work begins whose wait would be refused. ResourceExhausted
  /// (BUSY). It must end before this object.
  absl::StatusOr<std::shared_ptr<void>> TakePlace();
  /// Something may have changed. Any thread; does not block.
  void Wake();
  void Stop();

 private:
  struct Watch;
  struct Place;
  class WatchHandle;
  void Run(std::stop_token stop);
  void Turn();
  /// Whether the watch was taken: not while there are kMost, unless it has its place already.
  bool Take(std::shared_ptr<Watch> watch, bool has_place = false);
  /// Until the next look: when a wait's time is over, at the latest in 50 ms.
  std::chrono::steady_clock::duration Pause() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  using Seen = std::unordered_map<std::string, absl::StatusOr<Status>>;
  /// Tells the watcher, if there is something to tell. Returns whether the watch is over. `seen`:
  /// what this turn has looked up already.
  bool Look(Watch& watch, Seen& seen);

  const std::function<absl::StatusOr<Status>(const std::string&)> get_;
  Mutex mutex_;
  CondVar cv_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  size_t places_ ABSL_GUARDED_BY(mutex_) = 0;  // taken, and not used yet
  std::list<std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

extern template class StatusWatches<model::ScanStatus>;
extern template class StatusWatches<job::JobStatus>;
extern template class StatusWatches<operation::OperationStatus>;
using ScanWatches = StatusWatches<model::ScanStatus>;
using JobWatches = StatusWatches<job::JobStatus>;

}  // namespace octavo::engine
