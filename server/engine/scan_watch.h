#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/base/callback_handle.h"
#include "server/job/job.h"
#include "server/model/status_types.h"

namespace octavo::engine {

/// Notifies watchers of scans (or jobs): at once on a change of state, within 50 ms of any other
/// change (Status::event_count), and twice a second. One thread serves all watchers.
template <class Status>
class StatusWatches {
 public:
  /// `get` looks up the status by name.
  explicit StatusWatches(std::function<absl::StatusOr<Status>(const std::string&)> get);
  ~StatusWatches();
  /// `callback` is called until the final state, or once with the error of `get` if the scan or job
  /// no longer exists.
  std::unique_ptr<base::Handle> Add(const std::string& name,
                                    std::function<void(const absl::StatusOr<Status>&)> callback);
  /// Something may have changed. Any thread; does not block.
  void Wake();
  void Stop();

 private:
  struct Watch;
  class WatchHandle;
  void Run(std::stop_token stop);

  const std::function<absl::StatusOr<Status>(const std::string&)> get_;
  Mutex mutex_;
  CondVar cv_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

extern template class StatusWatches<model::ScanStatus>;
extern template class StatusWatches<job::JobStatus>;
using ScanWatches = StatusWatches<model::ScanStatus>;
using JobWatches = StatusWatches<job::JobStatus>;

}  // namespace octavo::engine
