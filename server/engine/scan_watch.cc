#include "server/engine/scan_watch.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <pthread.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::engine {
namespace {

absl::Status Full() {
  constexpr size_t kMost = ScanWatches::kMost;
  return WithInfo(absl::ResourceExhaustedError(absl::StrCat(
                      kMost,
                      " calls wait for scans, jobs or operations of this kind or watch them; "
                      "end one, or try again")),
                  {.reason = Reason::kBusy,
                   .field = "",
                   .numbers = {{"allowed", absl::StrCat(kMost)}, {"retryable", "true"}}});
}

}  // namespace

template <class Status>
struct StatusWatches<Status>::Watch {
  std::string name;
  std::recursive_mutex mutex;  // held while the callback runs, so that Cancel can promise silence;
                               // it may cancel itself
  std::function<void(const absl::StatusOr<Status>&)> callback;  // empty = cancelled
  decltype(Status::state) told{};                               // none yet
  uint64_t events_told = 0;
  std::chrono::steady_clock::time_point told_at{};
  // Of a wait: null otherwise. A wait is told once.
  std::function<bool()> over;
  std::optional<std::chrono::steady_clock::time_point> until;
};

template <class Status>
struct StatusWatches<Status>::Place {
  explicit Place(StatusWatches* of) : watches(of) {}
  ~Place() {
    if (!counts) return;
    MutexLock lock(watches->mutex_);
    --watches->places_;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  StatusWatches* const watches;
  bool counts = false;
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
  if (!Take(watch)) watch->callback(Full());
  return std::make_unique<WatchHandle>(watch);
}

template <class Status>
void StatusWatches<Status>::Wait(const std::string& name,
                                 std::optional<std::chrono::steady_clock::time_point> until,
                                 std::function<void(const absl::StatusOr<Status>&)> done,
                                 std::function<bool()> over, std::shared_ptr<void> place) {
  auto watch = std::make_shared<Watch>();
  watch->name = name;
  watch->callback = std::move(done);
  watch->over = std::move(over);
  watch->until = until;
  if (!Take(watch, place != nullptr)) watch->callback(Full());
}

template <class Status>
absl::StatusOr<std::shared_ptr<void>> StatusWatches<Status>::TakePlace() {
  auto place = std::make_shared<Place>(this);
  {
    MutexLock lock(mutex_);
    place->counts = watches_.size() + places_ < kMost;
    if (place->counts) ++places_;
  }
  if (!place->counts) return Full();
  return std::shared_ptr<void>(std::move(place));
}

template <class Status>
bool StatusWatches<Status>::Take(std::shared_ptr<Watch> watch, bool has_place) {
  {
    MutexLock lock(mutex_);
    if (!has_place && watches_.size() + places_ >= kMost) return false;
    watches_.push_back(std::move(watch));
  }
  Wake();
  return true;
}

template <class Status>
void StatusWatches<Status>::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  cv_.NotifyAll();
}

template <class Status>
std::chrono::steady_clock::duration StatusWatches<Status>::Pause() const {
  using std::chrono::steady_clock;
  steady_clock::duration pause = std::chrono::milliseconds(50);
  const auto now = steady_clock::now();
  for (const auto& watch : watches_) {
    if (watch->until.has_value())
      pause = std::clamp(*watch->until - now, steady_clock::duration::zero(), pause);
  }
  return pause;
}

template <class Status>
void StatusWatches<Status>::Run(std::stop_token stop) {
  while (!stop.stop_requested())
    base::GuardedTurn("a turn of oct-watch broke off", [&] { Turn(); });
}

template <class Status>
void StatusWatches<Status>::Turn() {
  // Only this thread takes watches out of the list, so the places stay.
  std::vector<typename std::list<std::shared_ptr<Watch>>::iterator> watches;
  {
    MutexLock lock(mutex_);
    if (!woken_) cv_.WaitFor(lock, Pause());
    woken_ = false;
    watches.reserve(watches_.size());
    for (auto place = watches_.begin(); place != watches_.end(); ++place) watches.push_back(place);
  }
  Seen seen;
  for (const auto place : watches) {
    // One that breaks off is told in the next turn; the others are told now.
    base::GuardedTurn("a watch is not told", [&] {
      (void)Failpoint("watch_told");
      if (!Look(**place, seen)) return;
      std::list<std::shared_ptr<Watch>> over;  // let go without the lock
      MutexLock lock(mutex_);
      over.splice(over.begin(), watches_, place);
    });
  }
}

template <class Status>
bool StatusWatches<Status>::Look(Watch& watch, Seen& seen) {
  const auto now = std::chrono::steady_clock::now();
  const bool waits = watch.over != nullptr;
  if (waits && watch.over()) {
    std::lock_guard lock(watch.mutex);
    watch.callback = nullptr;
    return true;
  }
  auto known = seen.find(watch.name);
  if (known == seen.end()) known = seen.emplace(watch.name, get_(watch.name)).first;
  const absl::StatusOr<Status>& status = known->second;
  std::lock_guard lock(watch.mutex);
  // An error: it is forgotten, because the engine forgets what ended long ago.
  bool over = !status.ok() || !watch.callback;
  if (waits && !over) {
    over = IsFinal(status->state) || (watch.until.has_value() && now >= *watch.until);
    if (!over) return false;
  }
  const bool due = over || watch.told != status->state ||
                   watch.events_told != status->event_count ||
                   now - watch.told_at >= std::chrono::milliseconds(500);
  if (watch.callback && due) {
    if (status.ok()) {
      watch.told = status->state;
      watch.events_told = status->event_count;
    }
    watch.told_at = now;
    const auto callback = watch.callback;
    callback(status);
  }
  over = over || !watch.callback || IsFinal(watch.told);
  if (over) watch.callback = nullptr;
  return over;
}

template class StatusWatches<model::ScanStatus>;
template class StatusWatches<job::JobStatus>;
template class StatusWatches<operation::OperationStatus>;

}  // namespace octavo::engine
