#include "server/rpc/transport/stall_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"

namespace octavo::rpc {
namespace {

/// Those that somebody still holds.
template <class Timer>
class Timers {
 public:
  void Add(const std::shared_ptr<Timer>& timer) {
    MutexLock lock(mutex_);
    all_.push_back(timer);
  }
  std::vector<std::shared_ptr<Timer>> Now() {
    std::vector<std::shared_ptr<Timer>> timers;
    MutexLock lock(mutex_);
    std::erase_if(all_, [](const auto& weak) { return weak.expired(); });
    for (const auto& weak : all_) {
      if (auto timer = weak.lock()) timers.push_back(std::move(timer));
    }
    return timers;
  }

 private:
  Mutex mutex_;
  std::list<std::weak_ptr<Timer>> all_ ABSL_GUARDED_BY(mutex_);
};

template <class Timer>
Timers<Timer>& AllTimers() {
  static auto& timers = *new Timers<Timer>;
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

void MessageTimer::Begin() {
  MutexLock lock(mutex_);
  if (state_ != State::kNotBegun) return;  // it was faster
  state_ = State::kWaiting;
  since_ = Clock::now();
}
bool MessageTimer::Came() {
  MutexLock lock(mutex_);
  if (state_ == State::kOverdue || state_ == State::kEnded) return false;
  state_ = State::kCame;
  return true;
}
bool MessageTimer::IsOver(Clock::time_point now, std::chrono::duration<double> patience) {
  MutexLock lock(mutex_);
  if (state_ == State::kWaiting && now - since_ > patience) state_ = State::kOverdue;
  return state_ == State::kOverdue;
}
void MessageTimer::Ended() {
  MutexLock lock(mutex_);
  state_ = State::kEnded;
}
void MessageTimer::Again() {
  MutexLock lock(mutex_);
  if (state_ == State::kCame) state_ = State::kNotBegun;
  first_ = false;
}
bool MessageTimer::WaitsForFirst() {
  MutexLock lock(mutex_);
  return first_;
}

void StallWatch::Add(const std::shared_ptr<WriteTimer>& timer) {
  AllTimers<WriteTimer>().Add(timer);
}
void StallWatch::Add(const std::shared_ptr<MessageTimer>& timer) {
  AllTimers<MessageTimer>().Add(timer);
}

StallWatch::StallWatch(std::chrono::duration<double> patience,
                       std::function<void(const std::string&)> ended,
                       std::function<void(const std::string&)> cut)
    : patience_(patience),
      ended_(std::move(ended)),
      cut_(std::move(cut)),
      thread_("oct-stalls", std::chrono::milliseconds(250), [this] { Look(); }) {}

void StallWatch::Look() {
  (void)Failpoint("stalls_turn");
  LookAtWrites();
  LookForMessages();
}

void StallWatch::LookAtWrites() {
  constexpr std::chrono::seconds kToEnd(
      2);  // grace for a cancelled call on a connection whose peer still reads
  const auto timers = AllTimers<WriteTimer>().Now();
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
      ended_("stalled");
    } else if (timer->cancelled_ && now - timer->since_ > kToEnd) {
      cut_(timer->peer_);
    }
  }
}

void StallWatch::LookForMessages() {
  const auto timers = AllTimers<MessageTimer>().Now();
  if (timers.empty()) return;
  const auto error = [this](const char* what, const char* advice) {
    return WithInfo(
        absl::DeadlineExceededError(absl::StrCat(what, " did not come within ", patience_.count(),
                                                 " s (listen.stalled_seconds)", advice)),
        {.reason = Reason::kProtocol, .field = "", .numbers = {}});
  };
  const absl::Status no_first = error("the first message, which names what the stream feeds,",
                                      "; open a stream when there is one to send");
  const absl::Status no_further =
      error("the next message of the stream, or its end,",
            ", and the stream keeps others from what it changes; open one when all is there that "
            "it sends");
  const auto now = MessageTimer::Clock::now();
  for (const auto& timer : timers) {
    if (!timer->IsOver(now, patience_)) continue;
    const bool first = timer->WaitsForFirst();
    // First, because from here on nobody else ends the stream: for lack of memory, the next turn
    // tries again, and the other streams end all the same.
    if (!base::GuardedTurn("ending a stream without a message",
                           [&] { timer->overdue_(first ? no_first : no_further); }))
      continue;
    timer->Ended();
    Log(LogLevel::kWarning,
        first ? "a client has opened a stream and sends no first message; the server ends the call"
              : "a client has begun a stream and sends no more; the server ends the call",
        {{"peer", timer->peer_}});
    ended_(first ? "no_first_message" : "no_message");
  }
}

}  // namespace octavo::rpc
