#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/job/job_admission.h"
#include "server/job/job_dispatcher.h"
#include "server/job/job_executor.h"
#include "server/job/job_observer.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/job/job_workers.h"
#include "server/model/stats.h"

namespace octavo::job {

/// Manages jobs from their submission to their volumes. Owns and connects the objects that do the
/// work, and tells the observer of changes that clients made:
///   JobAdmission: where a job may run, and what it needs there;
///   JobTable: the jobs and their states, under the one lock;
///   JobDispatcher: which job gets which device next;
///   JobWorkers: the threads, each of which runs a job with the JobExecutor.
/// A job that waits for its input gives up its turn (JobRun::WithoutDevice) but not its memory.
/// Thread-safe; calls are short.
class JobQueue {
 public:
  using Context = JobServices;
  explicit JobQueue(Context context);
  ~JobQueue();  // Shutdown

  /// The first answer to a known request_id (also AlreadyExists); nothing for a new one. Call this
  /// before making the work.
  absl::StatusOr<std::optional<JobStatus>> Earlier(const model::JobSpec& spec) {
    return table_.Earlier(spec);
  }
  /// Errors as JobService.SubmitJob; `report` (may be null) says why memory can never suffice.
  absl::StatusOr<JobStatus> Submit(const model::JobSpec& spec, std::unique_ptr<JobWork> work,
                                   model::AdmissionReport* report);
  absl::StatusOr<model::AdmissionReport> Plan(const model::JobSpec& spec, const JobWork& work,
                                              JobPlan* chosen) {
    return admission_.Plan(spec, work, chosen);
  }
  absl::StatusOr<JobStatus> Get(const std::string& name) { return table_.Get(name); }
  /// As JobTable::List.
  std::vector<JobStatus> List(uint64_t before = std::numeric_limits<uint64_t>::max(),
                              size_t most = std::numeric_limits<size_t>::max()) {
    return table_.List(before, most);
  }
  /// As JobTable::ChangedSince.
  std::vector<JobStatus> ChangedSince(uint64_t* seen) { return table_.ChangedSince(seen); }
  /// `caller`: null if the server acts for itself; else also PermissionDenied (NOT_OWNER).
  absl::StatusOr<JobStatus> Cancel(const std::string& name, Reason reason_code = Reason::kCancelled,
                                   const std::string& reason = "cancelled by a client",
                                   const security::Principal* caller = nullptr);
  /// Cancels a job whose result is scratch because its session has ended (SESSION_EXPIRED).
  absl::StatusOr<JobStatus> CancelScratch(const JobStatus& job);
  /// The same for all jobs of these sessions whose JobSpec.orphan says that they are scratch.
  void CancelScratchOf(const std::set<std::string>& sessions);
  /// The port to which clients push the projections of a job that has not ended. NotFound;
  /// FailedPrecondition (NOT_PUSH, JOB_STATE). `caller`: as for Cancel.
  absl::StatusOr<std::shared_ptr<source::ProjectionPort>> ProjectionPortOf(
      const std::string& name, const security::Principal* caller = nullptr) {
    return table_.ProjectionPortOf(name, caller);
  }

  /// The server has committed a volume of the job to `path`, or could not, which becomes a warning
  /// of the job. Jobs that are not known any more are ignored.
  void NoteCommitted(const std::string& job, const std::string& path);
  void NoteCommitFailed(const std::string& job, const std::string& warning);

  /// Starts jobs if memory or a device has become free, and joins threads that are no longer
  /// needed. Cheap when no job waits. Call several times a second.
  void Tick() { dispatcher_.Tick(); }
  /// Queued jobs are cancelled; running ones may finish.
  void BeginDrain();
  void CancelAll(Reason reason_code, const std::string& reason);
  /// Cancels waiting and running jobs, waits for their end and ends the workers: the observer is
  /// not called any more.
  void Shutdown();
  /// True when no job waits or runs.
  bool Idle() { return table_.Idle(); }
  /// Jobs that run on device `index`, including those that wait for their input.
  int RunningOn(int index) { return workers_.Busy(index); }
  void AddTo(model::Stats* stats) { table_.AddTo(stats); }

 private:
  const Context context_;
  const JobAdmission admission_;
  JobTable table_;
  JobWorkers workers_;
  JobDispatcher dispatcher_;
  JobExecutor executor_;
};

}  // namespace octavo::job
