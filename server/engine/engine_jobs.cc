#include <optional>
#include <utility>

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
  MutexLock submit(job_submit_mutex_);  // one at a time: two retries of one request must not both be queued
  OCTAVO_ASSIGN_OR_RETURN(const std::optional<JobStatus> earlier, jobs_.Earlier(spec));
  if (earlier.has_value()) return *earlier;
  if (draining_) return Draining();
  OCTAVO_ASSIGN_OR_RETURN(auto work, MakeJobWork(spec, JobNeeds()));
  return jobs_.Submit(spec, std::move(work), report);
}

absl::StatusOr<AdmissionReport> EngineImpl::PlanJob(const JobSpec& spec, std::string* plan) {
  OCTAVO_ASSIGN_OR_RETURN(const auto work, MakeJobWork(spec, JobNeeds()));
  return jobs_.Plan(spec, *work, plan);
}

absl::StatusOr<std::unique_ptr<Handle>> EngineImpl::WatchJob(const std::string& name,
                                                             std::function<void(const absl::StatusOr<JobStatus>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(jobs_.Get(name).status());
  return job_watches_.Add(name, std::move(callback));
}

}  // namespace octavo::engine
