#include "server/engine/scan_watch.h"

#include <chrono>
#include <mutex>
#include <pthread.h>
#include <utility>
#include <vector>

namespace octavo::engine {

template <class Status>
struct StatusWatches<Status>::Watch {
  std::string name;
  std::recursive_mutex mutex;  // held while the callback runs, so that Cancel can promise silence;
                               // it may cancel itself
  std::function<void(const absl::StatusOr<Status>&)> callback;  // empty = cancelled
  decltype(Status::state) told = decltype(Status::state)::kQueued;
  uint64_t events_told = 0;
  std::chrono::steady_clock::time_point told_at{};
};

template <class Status>
class StatusWatches<Status>::WatchHandle final : public base::Handle {
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

template <class Status>
StatusWatches<Status>::StatusWatches(std::function<absl::StatusOr<Status>(const std::string&)> get)
    : get_(std::move(get)), thread_([this](std::stop_token stop) {
        pthread_setname_np(pthread_self(), "oct-watch");
        Run(stop);
      }) {}

template <class Status>
StatusWatches<Status>::~StatusWatches() {
  Stop();
}

template <class Status>
void StatusWatches<Status>::Stop() {
  thread_.request_stop();
  Wake();
  if (thread_.joinable()) thread_.join();
}

template <class Status>
std::unique_ptr<base::Handle> StatusWatches<Status>::Add(
    const std::string& name, std::function<void(const absl::StatusOr<Status>&)> callback) {
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

template <class Status>
void StatusWatches<Status>::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  cv_.NotifyAll();
}

template <class Status>
void StatusWatches<Status>::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<Watch>> watches;
    {
      MutexLock lock(mutex_);
      if (!woken_) cv_.WaitFor(lock, std::chrono::milliseconds(50));
      woken_ = false;
      watches.assign(watches_.begin(), watches_.end());
    }
    for (const auto& watch : watches) {
      const auto now = std::chrono::steady_clock::now();
      const auto status = get_(watch->name);
      bool over = !status.ok();  // the scan is forgotten: the engine forgets old ended scans
      {
        std::lock_guard lock(watch->mutex);
        const bool due = over || watch->told != status->state ||
                         watch->events_told != status->event_count ||
                         now - watch->told_at >= std::chrono::milliseconds(500);
        if (watch->callback && due) {
          if (!over) {
            watch->told = status->state;
            watch->events_told = status->event_count;
          }
          watch->told_at = now;
          const auto callback = watch->callback;
          callback(status);
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

template class StatusWatches<model::ScanStatus>;
template class StatusWatches<job::JobStatus>;

}  // namespace octavo::engine
