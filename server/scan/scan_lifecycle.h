#pragma once

#include <atomic>
#include <initializer_list>
#include <stop_token>
#include <string>

#include "absl/status/status.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/status_types.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_observer.h"

namespace octavo::scan {

/// The state of a scan, and why it ends: QUEUED → RUNNING → DRAINING → a final state. The first
/// reason to end wins, but that a scan which only was to stop may still be cancelled or fail.
/// Thread-safe.
class ScanLifecycle {
 public:
  ScanLifecycle(std::string name, const Clock* clock, ScanEvents* events, ScanObserver* observer);

  /// True for the first call: the caller starts the scan.
  bool TakeStart() { return !started_.exchange(true); }
  /// The scan starts. RUNNING, unless it was to end at once already.
  TimePoint Begin();
  /// Publishes the event of the state and tells the observer; a final state stays.
  void SetState(model::ScanState state);
  /// The reason for the end, which comes when the scan is told so otherwise. False if there is one
  /// already.
  bool EndWith(model::ScanState state, const std::string& code, const std::string& reason);
  /// The scan ends at once, FAILED whatever was to be its end: what is still in flight does not
  /// come any more.
  void Fail(const std::string& code, const std::string& reason);
  /// Whether the end of the scan is still open, in the sense that the device is not through yet.
  bool CanFail();
  /// The scan ends after the current volume.
  void StopAtVolume(const std::string& code, const std::string& reason);
  /// The scan ends at once, CANCELLED; also one that was to stop.
  void Cancel(const std::string& code, const std::string& reason);
  /// The scan ends at once, with the reason that it has.
  void Abort() { abort_.request_stop(); }
  /// Everything is through the device. The state to be set, with the time of the end.
  model::ScanState End();
  /// The final state is told and the threads have nothing left to do.
  void Finish();

  model::ScanState state();
  std::string reason();
  bool stop_at_volume() const { return stop_at_volume_; }
  std::stop_token aborted() const { return abort_.get_token(); }
  bool finished() const { return finished_; }
  void WaitUntilFinished() { finished_.wait(false); }

  /// Sets state, reason and times.
  void AddTo(model::ScanStatus* status);
  /// OK in one of the states; else FailedPrecondition (SCAN_STATE) that names `field` and says
  /// "<scan> is <state><what>". `what` empty: the reason for the end.
  absl::Status Require(std::initializer_list<model::ScanState> states, const std::string& field,
                       const std::string& what);

 private:
  const std::string name_;
  const Clock* const clock_;
  ScanEvents* const events_;
  ScanObserver* const observer_;
  std::atomic<bool> started_{false}, stop_at_volume_{false}, finished_{false};
  std::stop_source abort_;  // cancel or failure: everything ends at once

  Mutex mutex_;
  model::ScanState state_ ABSL_GUARDED_BY(mutex_) = model::ScanState::kQueued;
  model::ScanState end_state_ ABSL_GUARDED_BY(mutex_) = model::ScanState::kDone;
  bool over_ ABSL_GUARDED_BY(mutex_) =
      false;  // End was called: nothing changes end_state_ any more
  std::string code_ ABSL_GUARDED_BY(mutex_), reason_ ABSL_GUARDED_BY(mutex_);
  const TimePoint created_;
  TimePoint begun_ ABSL_GUARDED_BY(mutex_), ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
