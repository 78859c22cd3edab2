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

/// Collects and publishes a scan's events while it runs: the list of events, their frames, markers,
/// gaps, and warnings. Thread-safe, except where a function says otherwise.
class ScanEvents {
 public:
  static constexpr size_t kEventsKept = 64, kWarningsKept = 64;

  /// `scan` must outlive this object. Only TellMarkers reads it, and only fields that no update of
  /// the processing changes.
  ScanEvents(std::string name, const model::ResolvedScan& scan, const Clock* clock,
             publish::Publisher* publisher, ScanObserver* observer);

  /// Adds an event to the list in the scan's status and publishes it on the EVENT topic. Both have
  /// the same order.
  model::ScanEvent Publish(model::ScanEvent event);
  /// Adds to the list only, for an event that another component publishes on the EVENT topic.
  void Record(model::ScanEvent event);
  /// As Publish, if `happens` returns true. `happens` is called under the lock of the list, so a
  /// client that sees its effect also finds the event. Returns the result of `happens`.
  bool PublishIf(const std::function<bool()>& happens, model::ScanEvent event);

  /// Publishes the event of a client's marker, set at the record being processed now.
  model::ScanEvent Mark(const std::string& marker);
  /// Publishes the gaps before a block's records and the markers on them. Blocks must come in
  /// order. Compute thread.
  void TellMarkers(const source::SourceBlock& block, source::Source& source);
  /// The first record that has not been processed yet.
  int64_t next_record() const { return next_record_; }

  /// Warns of a possible mistake: clients see the sentence in Scan.warnings, and the server logs
  /// it. A text is kept once. Beyond kWarningsKept, later warnings are only logged.
  void Warn(const std::string& text);
  /// The same for a volume that failed to reach a disk. The scan's files do not repeat this
  /// warning.
  void WarnOfCommit(const std::string& text);
  /// Warns of a volume with too many clipped voxels; once for each processing. `voxels`: the number
  /// of placed voxels. Retire thread.
  void WarnOfClipping(const model::VolumeStatus& volume, int64_t voxels);
  std::vector<std::string> Warnings();
  /// Only the warnings about the data; committed files carry them.
  std::vector<std::string> WarningsOfData();

  /// Sets `events` and `event_count`. Call after reading the state, so that the state's event is in
  /// the list.
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

  // Held while an event is published, so that the list and the topic have the same order. Acquired
  // before the publisher's lock and before the lock of the scan's state (PublishIf).
  Mutex event_mutex_;
  std::deque<model::ScanEvent> recent_ ABSL_GUARDED_BY(event_mutex_);
  uint64_t count_ ABSL_GUARDED_BY(event_mutex_) = 0;
  std::atomic<int64_t> next_record_{0};

  Mutex warning_mutex_;
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(warning_mutex_);
  std::set<std::string> commit_warnings_
      ABSL_GUARDED_BY(warning_mutex_);  // the warnings that do not concern the data
  // The processing that was last warned of clipping; retire thread. Weak: only which one it was
  // matters, and a scan that has ended stays listed.
  std::weak_ptr<const model::ResolvedScan> clipping_told_;
};

}  // namespace octavo::scan
