#include "server/scan/scan_lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::scan {

ScanLifecycle::ScanLifecycle(std::string name, const Clock* clock, ScanEvents* events,
                             ScanObserver* observer)
    : name_(std::move(name)),
      clock_(clock),
      events_(events),
      observer_(observer),
      created_(clock->Now()) {}

TimePoint ScanLifecycle::Begin() {
  const TimePoint now = clock_->Now();
  {
    MutexLock lock(mutex_);
    begun_ = now;
  }
  if (!abort_.stop_requested()) SetState(model::ScanState::kRunning);
  return now;
}

void ScanLifecycle::SetState(model::ScanState state) {
  const auto changes = [&] {
    MutexLock lock(mutex_);
    if (state_ == state || IsFinal(state_)) return false;
    state_ = state;
    return true;
  };
  if (events_->PublishIf(changes,
                         {.kind = state == model::ScanState::kRunning ? model::EventKind::kStarted
                                  : IsFinal(state)                    ? model::EventKind::kFinished
                                                                      : model::EventKind::kState,
                          .text = absl::StrCat("scan ", Name(state)),
                          .scan_state = state}))
    observer_->OnScanChanged(name_);
}

bool ScanLifecycle::EndWith(model::ScanState state, Reason code, const std::string& reason) {
  MutexLock lock(mutex_);
  if (code_ != Reason::kNone) return false;
  end_state_ = state;
  code_ = code;
  reason_ = reason;
  return true;
}

void ScanLifecycle::Fail(Reason code, const std::string& reason) {
  {
    MutexLock lock(mutex_);
    const bool open = code_ == Reason::kNone || end_state_ == model::ScanState::kDone;
    if (over_ || !open) return;
    end_state_ = model::ScanState::kFailed;
    code_ = code;
    reason_ = reason;
  }
  abort_.request_stop();
}

bool ScanLifecycle::CanFail() {
  MutexLock lock(mutex_);
  return !over_;
}

void ScanLifecycle::StopAtVolume(Reason code, const std::string& reason) {
  if (EndWith(model::ScanState::kDone, code, reason))
    events_->Publish({.kind = model::EventKind::kInterrupted, .text = reason});
  int64_t none = 0;
  stopped_ns_.compare_exchange_strong(none, clock_->Now().monotonic_ns);  // the first one counts
  stop_at_volume_ = true;
  SetState(model::ScanState::kDraining);
}

void ScanLifecycle::Cancel(Reason code, const std::string& reason) {
  bool news = EndWith(model::ScanState::kCancelled, code, reason);
  {
    // A stop that has not finished yet becomes a cancel.
    MutexLock lock(mutex_);
    if (!over_ && end_state_ == model::ScanState::kDone) {
      news = true;
      end_state_ = model::ScanState::kCancelled;
      code_ = code;
      reason_ = reason;
    }
  }
  if (news) events_->Publish({.kind = model::EventKind::kInterrupted, .text = reason});
  abort_.request_stop();
  SetState(model::ScanState::kDraining);
}

model::ScanState ScanLifecycle::End() {
  const TimePoint now = clock_->Now();
  MutexLock lock(mutex_);
  ended_ = now;
  over_ = true;
  return end_state_;
}

void ScanLifecycle::Finish() {
  finished_ = true;
  finished_.notify_all();
}

model::ScanState ScanLifecycle::state() {
  MutexLock lock(mutex_);
  return state_;
}

std::pair<Reason, std::string> ScanLifecycle::why() {
  MutexLock lock(mutex_);
  return {code_, reason_};
}

void ScanLifecycle::AddTo(model::ScanStatus* status) {
  MutexLock lock(mutex_);
  status->state = state_;
  status->reason_code = code_;
  status->reason = reason_;
  status->created = created_;
  status->started = begun_;
  status->ended = ended_;
}

absl::Status ScanLifecycle::Require(std::initializer_list<model::ScanState> states,
                                    const std::string& field, const std::string& what) {
  MutexLock lock(mutex_);
  if (std::find(states.begin(), states.end(), state_) != states.end()) return absl::OkStatus();
  return WithInfo(
      absl::FailedPreconditionError(
          absl::StrCat(name_, " is ", Name(state_), what.empty() ? ": " + reason_ : what)),
      {.reason = Reason::kScanState, .field = field, .numbers = {{"state", Name(state_)}}});
}

}  // namespace octavo::scan
