#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"
#include "server/publish/publisher.h"
#include "server/scan/scan_observer.h"
#include "server/source/source.h"

namespace octavo::scan {

/// What a scan tells of itself while it runs: its list of events and their frames, markers and
/// gaps, warnings. Thread-safe but for what says otherwise.
class ScanEvents {
 public:
  static constexpr size_t kEventsKept = 64, kWarningsKept = 64;

  /// `scan` must outlive this; of it only what no update of the processing changes is read, by
  /// TellMarkers.
  ScanEvents(std::string name, const model::ResolvedScan& scan, const Clock* clock,
             publish::Publisher* publisher, ScanObserver* observer);

  /// Adds to the list that the scan's status tells, and to its EVENT topic: in the same order.
  model::ScanEvent Publish(model::ScanEvent event);
  /// Adds to the list alone: of what somebody else tells the EVENT topic.
  void Record(model::ScanEvent event);
  /// As Publish if `happens`, which is called under the lock of the list: whoever sees what it did
  /// finds the event. Returns what it returned.
  bool PublishIf(const std::function<bool()>& happens, model::ScanEvent event);

  /// The event of a marker that a client sets at the record that is being processed now.
  model::ScanEvent Mark(const std::string& marker);
  /// Of the records of a block: what is lost before them, and what they are marked with. Blocks in
  /// order; compute thread.
  void TellMarkers(const source::SourceBlock& block, source::Source& source);
  /// The first record that was not processed yet.
  int64_t next_record() const { return next_record_; }

  /// What might be a mistake: a sentence that clients are shown (Scan.warnings) and that is logged.
  /// A text counts once; of too many the later ones are only logged.
  void Warn(const std::string& text);
  /// The same of a volume that is on no disk: no file of the scan repeats it.
  void WarnOfCommit(const std::string& text);
  /// Warns of a volume of which too many voxels were clipped; once for each processing. `voxels`:
  /// those that were placed. Retire thread.
  void WarnOfClipping(const model::VolumeStatus& volume, int64_t voxels);
  std::vector<std::string> Warnings();
  /// What files say of the data.
  std::vector<std::string> WarningsOfData();

  /// Sets `events` and `event_count`. Called after the state was read, so that its event is there.
  void AddTo(model::ScanStatus* status);
  int64_t ListedBytes();

 private:
  model::ScanEvent RecordLocked(model::ScanEvent event, bool publish)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(event_mutex_);
  void PublishFrame(const model::ScanEvent& event);

  const std::string name_;
  const model::ResolvedScan& scan_;
  const int64_t volume_records_, wanted_records_;
  const Clock* const clock_;
  publish::Publisher* const publisher_;
  ScanObserver* const observer_;

  // Held while an event is published, so that both orders are the same; comes before the
  // publisher's lock and before that of the scan's state (PublishIf).
  Mutex event_mutex_;
  std::deque<model::ScanEvent> recent_ ABSL_GUARDED_BY(event_mutex_);
  uint64_t count_ ABSL_GUARDED_BY(event_mutex_) = 0;
  std::atomic<int64_t> next_record_{0};

  Mutex warning_mutex_;
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(warning_mutex_);
  std::set<std::string> commit_warnings_
      ABSL_GUARDED_BY(warning_mutex_);  // those of them that are no matter of the data
  std::shared_ptr<const model::ResolvedScan>
      clipping_told_;  // the processing of which it was told that it clips; retire thread
};

}  // namespace octavo::scan
