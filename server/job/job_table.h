#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/base/reason.h"
#include "server/job/job.h"
#include "server/job/job_entry.h"
#include "server/job/job_order.h"
#include "server/model/stats.h"
#include "server/publish/publisher.h"

namespace octavo::job {

/// The jobs under one lock: those that wait or run, and the last ones that ended. The table changes
/// their states, keeps their logs, warnings and requests, and counts them. It tells the publisher
/// when a job with images is queued and when it has ended. It gives no devices (job_dispatcher.h)
/// and runs nothing. Thread-safe. Lock order: the table before the publisher.
class JobTable {
 public:
  /// `last_number`: of the jobs of earlier daemons; those of this one count on. `quotas`: null =
  /// jobs are not counted.
  JobTable(const Clock* clock, publish::Publisher* publisher, uint64_t last_number = 0,
           memory::QuotaBook* quotas = nullptr)
      : clock_(clock), publisher_(publisher), quotas_(quotas), inserted_(last_number) {}

  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }

  // -- under the lock
  /// Adds a queued job with its request id. Unavailable (DRAINING), ResourceExhausted (QUEUE_FULL).
  absl::StatusOr<JobStatus> Insert(const JobPtr& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// NotFound (NO_JOB).
  absl::StatusOr<JobPtr> Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The queued jobs, the next one first.
  std::vector<JobPtr> Waiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return order_.Waiting(jobs_);
  }
  /// The jobs that want their device's turn again, the next one first.
  std::vector<JobPtr> Returning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return JobOrder::Returning(jobs_);
  }
  /// Whether any job waits for a device, for the first time or again.
  bool AnyWaits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The job has got a device, so the turn goes to the next group.
  void Served(const JobEntry& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    order_.Served(job.status.spec.group);
    positions_.reset();
  }
  JobStatus StatusOf(const JobEntry& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Does and logs the transition; an impossible one is an error in the server's log and changes
  /// nothing.
  void SetState(JobEntry& job, JobState state, Reason code, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Adds a line to the job's log.
  void Record(JobEntry& job, const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Adds a warning, and a line; repeated texts count once.
  void Warn(JobEntry& job, const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The job has the volume, so that a reader of the name finds it.
  void AddVolume(JobEntry& job, const std::string& volume) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Bounds what ended jobs take: the oldest are dropped when there are very many; large
  /// specifications are dropped earlier.
  void ForgetOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- these take the lock
  /// The job that a request id made; nothing for a new one. AlreadyExists (IDEMPOTENCY_MISMATCH).
  absl::StatusOr<std::optional<JobStatus>> Earlier(const model::JobSpec& spec)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<JobStatus> Get(const std::string& name) ABSL_LOCKS_EXCLUDED(mutex_);
  /// Up to `most` jobs with a smaller number than `before`, newest first.
  std::vector<JobStatus> List(uint64_t before = std::numeric_limits<uint64_t>::max(),
                              size_t most = std::numeric_limits<size_t>::max())
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// The jobs that came, changed their state, or got a volume or a commit since `seen`, which this
  /// brings up to date; at first it is 0. An ended job is not forgotten before it was told.
  std::vector<JobStatus> ChangedSince(uint64_t* seen) ABSL_LOCKS_EXCLUDED(mutex_);
  /// NotFound (NO_JOB); FailedPrecondition (NOT_PUSH, JOB_STATE).
  /// `caller`: null if the server asks for itself; else also PermissionDenied (NOT_OWNER).
  absl::StatusOr<std::shared_ptr<source::ProjectionPort>> ProjectionPortOf(
      const std::string& name, const security::Principal* caller = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// A job that waits is CANCELLED at once; one that runs becomes CANCELLING, and its stop token is
  /// requested, unless it is too late. NotFound (NO_JOB). `caller`: as above.
  absl::StatusOr<JobStatus> Cancel(const std::string& name, Reason code, const std::string& reason,
                                   const security::Principal* caller = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// The server has committed a volume of the job to `path`. False: the job is not known any more.
  bool NoteCommitted(const std::string& name, const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  /// It could not: counts that, and warns. False: the job is not known any more.
  bool NoteCommitFailed(const std::string& name, const std::string& warning)
      ABSL_LOCKS_EXCLUDED(mutex_);
  /// Cancels the jobs that wait and takes no new ones. Returns their works, for the caller to
  /// release.
  std::vector<std::unique_ptr<JobWork>> BeginDrain() ABSL_LOCKS_EXCLUDED(mutex_);
  /// True when no job waits or runs.
  bool Idle() ABSL_LOCKS_EXCLUDED(mutex_);
  void AddTo(model::Stats* stats) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Clock* const clock_;
  publish::Publisher* const publisher_;
  memory::QuotaBook* const quotas_;
  Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t inserted_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Up to which change whoever asks ChangedSince knows; until somebody does, nobody is waited for.
  uint64_t told_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<uint64_t>::max();
  JobList jobs_ ABSL_GUARDED_BY(mutex_);  // oldest first
  JobOrder order_ ABSL_GUARDED_BY(mutex_);
  // Places in the order, for lists, which would otherwise sort all that wait for each page; unknown
  // since the order changed.
  std::optional<std::unordered_map<const JobEntry*, int64_t>> positions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::pair<std::string, std::string>> requests_
      ABSL_GUARDED_BY(mutex_);  // id → digest, job
  std::map<std::pair<std::string, std::string>, int64_t> finished_
      ABSL_GUARDED_BY(mutex_);  // (kind, reason)
  model::Histogram queue_seconds_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, model::Histogram> run_seconds_ ABSL_GUARDED_BY(mutex_);  // by kind
};

}  // namespace octavo::job
