#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/engine_impl.h"
#include "server/engine/job_kinds.h"

namespace octavo::engine {

JobEnvironment EngineImpl::JobNeeds() {
  return {.volumes = &volumes_,
          .ledger = &ledger_,
          .buffers = buffers_.get(),
          .spiller = spiller_.get(),
          .file_roots = config_.replay_roots,
          .projection_memory = &projection_memory_,
          .clock = clock_};
}

absl::StatusOr<JobStatus> EngineImpl::SubmitJob(const JobSpec& spec, AdmissionReport* report) {
  if (spec.request_id.empty()) return SubmitNewJob(spec, report);
  {
    // Two retries of one request must not both be queued. The lock is not kept while a job is made: that opens files, and storage that
    // hangs would stop all who submit.
    MutexLock lock(job_submit_mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const std::optional<JobStatus> earlier, jobs_.Earlier(spec));
    if (earlier.has_value()) return *earlier;
    if (!jobs_submitted_.insert(spec.request_id).second) {
      return WithInfo(absl::UnavailableError(absl::StrCat("request_id '", spec.request_id, "' is still at work; ask again")),
                      {.reason = "IN_PROGRESS", .field = "request_id", .numbers = {{"retryable", "true"}}});
    }
  }
  const absl::Cleanup over = [&] {
    MutexLock lock(job_submit_mutex_);
    jobs_submitted_.erase(spec.request_id);
  };
  return SubmitNewJob(spec, report);
}

absl::StatusOr<JobStatus> EngineImpl::SubmitNewJob(const JobSpec& spec, AdmissionReport* report) {
  if (draining_) return Draining();
  OCTAVO_RETURN_IF_ERROR(CheckOrphan(spec));
  OCTAVO_ASSIGN_OR_RETURN(auto work, MakeJobWork(spec, JobNeeds()));
  OCTAVO_ASSIGN_OR_RETURN(JobStatus job, jobs_.Submit(spec, std::move(work), report));
  // The session may have ended while the job was made: its end found no job then.
  if (spec.orphan == Orphan::kDiscard && sessions_of_clients_.Gone(spec.session)) return CancelJobOf(job);
  return job;
}

// As CheckSpill does for scans.
absl::Status EngineImpl::CheckOrphan(const JobSpec& spec) {
  if (spec.orphan != Orphan::kSpillDisk) return absl::OkStatus();
  const absl::Status status = spiller_->CheckTier(Tier::kDisk);
  if (status.ok()) return status;
  return WithInfo(absl::FailedPreconditionError(absl::StrCat("orphan: ", status.message())),
                  {.reason = InfoOf(status).reason, .field = "orphan", .numbers = InfoOf(status).numbers});
}

absl::StatusOr<JobStatus> EngineImpl::CancelJobOf(const JobStatus& job) {
  return jobs_.Cancel(job.name, "SESSION_EXPIRED", absl::StrCat(job.spec.session, " has ended; what the job would make is scratch"));
}

absl::StatusOr<AdmissionReport> EngineImpl::PlanJob(const JobSpec& spec, JobPlan* plan) {
  OCTAVO_RETURN_IF_ERROR(CheckOrphan(spec));
  OCTAVO_ASSIGN_OR_RETURN(const auto work, MakeJobWork(spec, JobNeeds()));
  return jobs_.Plan(spec, *work, plan);
}

absl::StatusOr<std::unique_ptr<Handle>> EngineImpl::WatchJob(const std::string& name,
                                                             std::function<void(const absl::StatusOr<JobStatus>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(jobs_.Get(name).status());
  return job_watches_.Add(name, std::move(callback));
}

}  // namespace octavo::engine
