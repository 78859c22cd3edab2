#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/engine/audit_recorder.h"
#include "server/engine/earlier_runs.h"
#include "server/engine/volume_recorder.h"
#include "server/job/job.h"
#include "server/model/status_types.h"
#include "server/storage/history/history_writer.h"
#include "server/volume/commit_observer.h"

namespace octavo::engine {

/// Puts a row into the history, and tells the audit log, for each scan, job and commit that begins,
/// changes its state or ends. Those that tell it of a change never wait: the thread `oct-history`
/// looks up what has changed and makes the rows, and the HistoryWriter has a thread for the disk.
/// Held volumes are the VolumeRecorder's, whose turns this thread runs. Thread-safe.
class HistoryRecorder final : public volume::CommitObserver {
 public:
  /// `writer`: null = there is no history. `earlier`: whose numbers go on.
  HistoryRecorder(storage::HistoryWriter* writer, AuditRecorder* audit, const Clock* clock,
                  const EarlierRuns& earlier)
      : writer_(writer),
        audit_(audit),
        clock_(clock),
        volumes_(writer, clock, earlier),
        commits_(earlier.LastNumber(storage::HistoryKind::kCommit)) {}
  ~HistoryRecorder() override { Stop(); }

  struct Sources {
    /// The status with its number.
    std::function<absl::StatusOr<model::ScanStatus>(const std::string&)> scan;
    /// As JobTable::ChangedSince.
    std::function<std::vector<job::JobStatus>(uint64_t*)> jobs;
    VolumeRecorder::Look volume;
  };
  /// Begins to follow scans, jobs and held volumes.
  void Start(Sources sources);
  /// Puts the last changes into the writer's queue and ends the thread. Commits, and ends of held
  /// volumes, are still recorded.
  void Stop();

  /// Learns of volumes.
  VolumeRecorder& volumes() { return volumes_; }

  void OnScanChanged(const std::string& scan);
  /// It could not begin, and its client has got an error.
  void OnScanWithdrawn(const std::string& scan);
  void OnJobsChanged();
  void OnCommitBegun(const volume::CommitNews& commit) override;
  void OnCommitEnded(const volume::CommitNews& commit,
                     const absl::StatusOr<storage::CommitOutcome>& outcome) override;

 private:
  void Run();
  /// Makes the rows of what has changed.
  void Collect(const std::set<std::string>& scans, bool jobs);
  void PutScan(const std::string& name);
  void Put(storage::HistoryRow row);
  /// Whether anybody wants rows.
  bool on() const { return writer_ != nullptr || audit_->on(); }

  storage::HistoryWriter* const writer_;
  AuditRecorder* const audit_;
  const Clock* const clock_;
  VolumeRecorder volumes_;
  Sources sources_;
  uint64_t jobs_seen_ = 0;                           // of the thread
  std::map<std::string, storage::HistoryRow> open_;  // of the thread: scans without an end

  Mutex mutex_;
  CondVar wake_;
  std::set<std::string> scans_ ABSL_GUARDED_BY(mutex_), withdrawn_ ABSL_GUARDED_BY(mutex_);
  bool jobs_ ABSL_GUARDED_BY(mutex_) = false, end_ ABSL_GUARDED_BY(mutex_) = false;
  bool volumes_due_ ABSL_GUARDED_BY(mutex_) = true;  // what was found held at the start
  uint64_t commits_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> commit_numbers_ ABSL_GUARDED_BY(mutex_);  // of running ones
  std::thread thread_;
};

}  // namespace octavo::engine
