#pragma once

#include <functional>
#include <list>
#include <memory>
#include <set>
#include <vector>

#include "gpu/base/mutex.h"
#include "server/base/callback_handle.h"
#include "server/model/status_types.h"

namespace octavo::engine {

/// Remembers lost devices and notifies watchers. Handles may outlive this object. Thread-safe.
class DeviceHealthWatch {
 public:
  /// Calls `callback` with `now` before it returns, and with each Tell.
  std::unique_ptr<base::Handle> Add(
      std::function<void(const std::vector<model::DeviceStatus>&)> callback,
      const std::vector<model::DeviceStatus>& now);
  /// Marks devices/<device> as lost; false if it was marked already.
  bool Lost(int device);
  void Tell(const std::vector<model::DeviceStatus>& devices);

 private:
  struct Watchers {
    Mutex mutex;  // held while a callback runs, so none runs after its handle is cancelled
    std::list<std::function<void(const std::vector<model::DeviceStatus>&)>> callbacks
        ABSL_GUARDED_BY(mutex);
  };
  class WatchHandle;
  const std::shared_ptr<Watchers> watchers_ = std::make_shared<Watchers>();
  Mutex mutex_;
  std::set<int> lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::engine
