#pragma once

#include <atomic>
#include <initializer_list>
#include <stop_token>
#include <string>

#include "absl/status/status.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/base/reason.h"
#include "server/model/status_types.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_observer.h"

namespace octavo::scan {

/// The state of a scan and the reason for its end: QUEUED → RUNNING → DRAINING → a final state. The
/// first reason to end wins, with one exception: a stopping scan may still be cancelled or fail.
/// Thread-safe.
class ScanLifecycle {
 public:
  ScanLifecycle(std::string name, const Clock* clock, ScanEvents* events, ScanObserver* observer);

  /// True for the first call only; that caller starts the scan.
  bool TakeStart() { return !started_.exchange(true); }
  /// The scan starts. The state becomes RUNNING unless the scan was already ordered to end.
  TimePoint Begin();
  /// Publishes the state's event and notifies the observer. A final state never changes.
  void SetState(model::ScanState state);
  /// Sets the reason for the end; another call ends the scan. False if a reason is already set.
  bool EndWith(model::ScanState state, Reason code, const std::string& reason);
  /// Ends the scan at once as FAILED, also while it is ending in another way. Work in flight is
  /// lost.
  void Fail(Reason code, const std::string& reason);
  /// Whether the scan may still fail: the device has not finished its work.
  bool CanFail();
  /// Ends the scan after the current volume: VolumeBuilder::Begin decides which one that is.
  void StopAtVolume(Reason code, const std::string& reason);
  /// Ends the scan at once as CANCELLED, even if it was already stopping.
  void Cancel(Reason code, const std::string& reason);
  /// Ends the scan at once with the reason already set.
  void Abort() { abort_.request_stop(); }
  /// The device has finished all work. Records the end time and returns the final state, which the
  /// caller sets.
  model::ScanState End();
  /// The final state has been published and the threads have no work left.
  void Finish();

  model::ScanState state();
  /// Why it ends or has ended; kNone and "" before.
  std::pair<Reason, std::string> why();
  bool stop_at_volume() const { return stop_at_volume_; }
  /// When StopAtVolume was called first; monotonic, 0 = not yet.
  int64_t stopped_ns() const { return stopped_ns_; }
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
  std::atomic<int64_t> stopped_ns_{0};
  std::stop_source abort_;  // cancel or failure: everything ends at once

  Mutex mutex_;
  model::ScanState state_ ABSL_GUARDED_BY(mutex_) = model::ScanState::kQueued;
  model::ScanState end_state_ ABSL_GUARDED_BY(mutex_) = model::ScanState::kDone;
  bool over_ ABSL_GUARDED_BY(mutex_) =
      false;  // End was called: nothing changes end_state_ any more
  Reason code_ ABSL_GUARDED_BY(mutex_) = Reason::kNone;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  const TimePoint created_;
  TimePoint begun_ ABSL_GUARDED_BY(mutex_), ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
