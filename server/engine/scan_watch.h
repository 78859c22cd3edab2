#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/engine/engine.h"
#include "server/engine/status_types.h"

namespace octavo::engine {

/// Tells watchers of scans what happens: at once on a change of state, and twice a second. One thread for all.
class ScanWatches {
 public:
  /// `get` looks a scan up; `tick` is called about twenty times a second for whatever else needs a beat.
  ScanWatches(std::function<absl::StatusOr<ScanStatus>(const std::string&)> get, std::function<void()> tick);
  ~ScanWatches();
  std::unique_ptr<Handle> Add(const std::string& name, std::function<void(const ScanStatus&)> callback);
  /// Something may have changed. Any thread; does not block.
  void Wake();
  void Stop();

 private:
  struct Watch;
  class WatchHandle;
  void Run(std::stop_token stop);

  const std::function<absl::StatusOr<ScanStatus>(const std::string&)> get_;
  const std::function<void()> tick_;
  Mutex mutex_;
  CondVar cv_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace octavo::engine
