#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/engine/engine_impl.h"
#include "server/engine/job_kinds.h"

namespace octavo::engine {

job::JobEnvironment EngineImpl::JobNeeds() {
  return {.volumes = &volumes_,
          .ledger = &ledger_,
          .buffers = buffers_.get(),
          .spiller = spiller_.get(),
          .file_roots = config_.replay_roots,
          .projection_memory = &projection_memory_,
          .clock = clock_};
}

absl::StatusOr<job::JobStatus> EngineImpl::SubmitJob(const model::JobSpec& spec,
                                                     model::AdmissionReport* report) {
  if (spec.request_id.empty()) return SubmitNewJob(spec, report);
  {
    // Two retries of one request must not both be queued. The lock is not kept while a job is made:
    // that opens files, and storage that hangs would stop all who submit.
    MutexLock lock(job_submit_mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const std::optional<job::JobStatus> earlier, jobs_.Earlier(spec));
    if (earlier.has_value()) return *earlier;
    if (!jobs_submitted_.insert(spec.request_id).second) {
      return WithInfo(
          absl::UnavailableError(
              absl::StrCat("request_id '", spec.request_id, "' is still at work; ask again")),
          {.reason = "IN_PROGRESS", .field = "request_id", .numbers = {{"retryable", "true"}}});
    }
  }
  const absl::Cleanup over = [&] {
    MutexLock lock(job_submit_mutex_);
    jobs_submitted_.erase(spec.request_id);
  };
  return SubmitNewJob(spec, report);
}

absl::StatusOr<job::JobStatus> EngineImpl::SubmitNewJob(const model::JobSpec& spec,
                                                        model::AdmissionReport* report) {
  if (draining_) return Draining();
  OCTAVO_RETURN_IF_ERROR(CheckOrphan(spec));
  OCTAVO_ASSIGN_OR_RETURN(auto work, MakeJobWork(spec, JobNeeds()));
  OCTAVO_ASSIGN_OR_RETURN(job::JobStatus job, jobs_.Submit(spec, std::move(work), report));
  // The session may have ended while the job was made: its end found no job then.
  if (spec.orphan == model::Orphan::kDiscard && sessions_of_clients_.Gone(spec.session))
    return CancelJobOf(job);
  return job;
}

// As CheckSpill does for scans.
absl::Status EngineImpl::CheckOrphan(const model::JobSpec& spec) {
  if (spec.orphan != model::Orphan::kSpillDisk) return absl::OkStatus();
  const absl::Status status = spiller_->CheckTier(model::Tier::kDisk);
  if (status.ok()) return status;
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat("orphan: ", status.message())),
      {.reason = InfoOf(status).reason, .field = "orphan", .numbers = InfoOf(status).numbers});
}

absl::StatusOr<job::JobStatus> EngineImpl::CancelJobOf(const job::JobStatus& job) {
  return jobs_.Cancel(
      job.name, "SESSION_EXPIRED",
      absl::StrCat(job.spec.session, " has ended; what the job would make is scratch"));
}

absl::StatusOr<model::AdmissionReport> EngineImpl::PlanJob(const model::JobSpec& spec,
                                                           job::JobPlan* plan) {
  OCTAVO_RETURN_IF_ERROR(CheckOrphan(spec));
  OCTAVO_ASSIGN_OR_RETURN(const auto work, MakeJobWork(spec, JobNeeds()));
  return jobs_.Plan(spec, *work, plan);
}

absl::StatusOr<std::unique_ptr<base::Handle>> EngineImpl::WatchJob(
    const std::string& name, std::function<void(const absl::StatusOr<job::JobStatus>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(jobs_.Get(name).status());
  return job_watches_.Add(name, std::move(callback));
}

}  // namespace octavo::engine
