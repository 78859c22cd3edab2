#include "server/engine/scan_watch.h"

#include <chrono>
#include <mutex>
#include <pthread.h>
#include <utility>
#include <vector>

namespace octavo::engine {

struct ScanWatches::Watch {
  std::string name;
  std::recursive_mutex mutex;                       // held while the callback runs, so that Cancel can promise silence; it may cancel itself
  std::function<void(const ScanStatus&)> callback;  // empty = cancelled
  ScanState told = ScanState::kQueued;
  uint64_t events_told = 0;
  std::chrono::steady_clock::time_point told_at{};
};

class ScanWatches::WatchHandle final : public Handle {
 public:
  explicit WatchHandle(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}
  ~WatchHandle() override { Cancel(); }
  void Cancel() override {
    std::lock_guard lock(watch_->mutex);
    watch_->callback = nullptr;
  }

 private:
  const std::shared_ptr<Watch> watch_;
};

ScanWatches::ScanWatches(std::function<absl::StatusOr<ScanStatus>(const std::string&)> get, std::function<void()> tick)
    : get_(std::move(get)), tick_(std::move(tick)), thread_([this](std::stop_token stop) {
        pthread_setname_np(pthread_self(), "oct-watch");
        Run(stop);
      }) {}

ScanWatches::~ScanWatches() { Stop(); }

void ScanWatches::Stop() {
  thread_.request_stop();
  Wake();
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<Handle> ScanWatches::Add(const std::string& name, std::function<void(const ScanStatus&)> callback) {
  auto watch = std::make_shared<Watch>();
  watch->name = name;
  watch->callback = std::move(callback);
  {
    MutexLock lock(mutex_);
    watches_.push_back(watch);
  }
  Wake();
  return std::make_unique<WatchHandle>(watch);
}

void ScanWatches::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  cv_.NotifyAll();
}

void ScanWatches::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<Watch>> watches;
    {
      MutexLock lock(mutex_);
      if (!woken_) cv_.WaitFor(lock, std::chrono::milliseconds(50));
      woken_ = false;
      watches.assign(watches_.begin(), watches_.end());
    }
    tick_();
    for (const auto& watch : watches) {
      const auto now = std::chrono::steady_clock::now();
      const auto status = get_(watch->name);
      bool over = !status.ok();
      {
        std::lock_guard lock(watch->mutex);
        const bool due = !over && (watch->told != status->state || watch->events_told != status->event_count ||
                                   now - watch->told_at >= std::chrono::milliseconds(500));
        if (watch->callback && due) {
          watch->told = status->state;
          watch->events_told = status->event_count;
          watch->told_at = now;
          const auto callback = watch->callback;
          callback(*status);
        }
        over = over || !watch->callback || IsFinal(watch->told);
        if (over) watch->callback = nullptr;
      }
      if (over) {
        MutexLock lock(mutex_);
        watches_.remove(watch);
      }
    }
  }
}

}  // namespace octavo::engine
