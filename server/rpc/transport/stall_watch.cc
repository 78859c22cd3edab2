#include "server/rpc/transport/stall_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"

namespace octavo::rpc {
namespace {

struct Timers {
  Mutex mutex;
  std::list<std::weak_ptr<WriteTimer>> all ABSL_GUARDED_BY(mutex);
};
Timers& AllTimers() {
  static auto& timers = *new Timers;
  return timers;
}

}  // namespace

void WriteTimer::Begin() {
  MutexLock lock(mutex_);
  writing_ = true;
  since_ = Clock::now();
}
void WriteTimer::End() {
  MutexLock lock(mutex_);
  writing_ = false;
}
void WriteTimer::Done() {
  MutexLock lock(mutex_);
  context_ = nullptr;
}

void StallWatch::Add(const std::shared_ptr<WriteTimer>& timer) {
  Timers& timers = AllTimers();
  MutexLock lock(timers.mutex);
  timers.all.push_back(timer);
}

StallWatch::StallWatch(std::chrono::duration<double> patience, std::function<void()> cancelled,
                       std::function<void(const std::string&)> cut)
    : patience_(patience),
      cancelled_(std::move(cancelled)),
      cut_(std::move(cut)),
      thread_("oct-stalls", std::chrono::milliseconds(250), [this] { Look(); }) {}

void StallWatch::Look() {
  (void)Failpoint("stalls_turn");
  constexpr std::chrono::seconds kToEnd(
      2);  // grace for a cancelled call on a connection whose peer still reads
  std::vector<std::shared_ptr<WriteTimer>> timers;
  {
    Timers& all = AllTimers();
    MutexLock lock(all.mutex);
    std::erase_if(all.all, [](const auto& weak) { return weak.expired(); });
    for (const auto& weak : all.all) {
      if (auto timer = weak.lock()) timers.push_back(std::move(timer));
    }
  }
  const auto now = WriteTimer::Clock::now();
  for (const auto& timer : timers) {
    MutexLock lock(timer->mutex_);
    if (timer->context_ == nullptr || !timer->writing_) continue;
    if (!timer->cancelled_ && now - timer->since_ > patience_) {
      Log(LogLevel::kWarning,
          "a client does not read what the server writes; the server ends the call",
          {{"peer", timer->peer_}});
      timer->cancelled_ = true;
      timer->since_ = now;
      timer->context_->TryCancel();  // its effects run on gRPC's threads
      cancelled_();
    } else if (timer->cancelled_ && now - timer->since_ > kToEnd) {
      cut_(timer->peer_);
    }
  }
}

}  // namespace octavo::rpc
