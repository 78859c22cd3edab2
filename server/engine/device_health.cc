#include "server/engine/device_health.h"

#include <utility>

namespace octavo::engine {

class DeviceHealthWatch::WatchHandle final : public base::Handle {
 public:
  using Callbacks = std::list<std::function<void(const std::vector<model::DeviceStatus>&)>>;
  WatchHandle(std::shared_ptr<Watchers> watchers, Callbacks::iterator at)
      : watchers_(std::move(watchers)), at_(at) {}
  ~WatchHandle() override { Cancel(); }
  void Cancel() override {
    if (watchers_ == nullptr) return;
    {
      MutexLock lock(watchers_->mutex);
      watchers_->callbacks.erase(at_);
    }
    watchers_ = nullptr;
  }

 private:
  std::shared_ptr<Watchers> watchers_;  // null: cancelled
  const Callbacks::iterator at_;
};

std::unique_ptr<base::Handle> DeviceHealthWatch::Add(
    std::function<void(const std::vector<model::DeviceStatus>&)> callback,
    const std::vector<model::DeviceStatus>& now) {
  MutexLock lock(watchers_->mutex);
  callback(now);
  watchers_->callbacks.push_back(std::move(callback));
  return std::make_unique<WatchHandle>(watchers_, std::prev(watchers_->callbacks.end()));
}

bool DeviceHealthWatch::Lost(int device) {
  MutexLock lock(mutex_);
  return lost_.insert(device).second;
}

void DeviceHealthWatch::Tell(const std::vector<model::DeviceStatus>& devices) {
  MutexLock lock(watchers_->mutex);
  for (const auto& callback : watchers_->callbacks) callback(devices);
}

}  // namespace octavo::engine
