#include "server/job/running_job.h"

#include <algorithm>

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"

namespace octavo::job {

RunningJob::RunningJob(const JobServices& services, JobTable& table, DeviceTurns& turns, JobPtr job,
                       StreamRef stream)
    : services_(services),
      table_(table),
      turns_(turns),
      job_(std::move(job)),
      device_(services.devices.device(job_->device)),
      stream_(stream),
      name_(job_->status.name),
      pictures_(services, name_, job_->device, stream),
      results_(services, table, pictures_, job_, stream),
      workspace_(device_, job_->plans.at(job_->device).workspace_bytes) {}

absl::Status RunningJob::WithoutDevice(const std::function<absl::Status()>& wait,
                                       std::stop_token stop) {
  OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
  turns_.GiveUp(job_);
  OCTAVO_RETURN_IF_ERROR(wait());
  return turns_.Take(job_, stop);
}

void RunningJob::Stage(JobStage stage, int64_t steps, double begin, double end) {
  {
    MutexLock lock(table_.mutex());
    JobStatus& status = job_->status;
    status.stage = stage;
    status.step = 0;
    status.steps = steps;
    status.fraction = begin;
    stage_begin_ = begin;
    stage_end_ = end;
    stage_ns_ = services_.clock->Now().monotonic_ns;
    ++status.event_count;
  }
  services_.observer->OnJobsChanged();
}

void RunningJob::Step(int64_t step, double residual_norm) {
  const int64_t now = services_.clock->Now().monotonic_ns;
  MutexLock lock(table_.mutex());
  JobStatus& status = job_->status;
  const double seconds = static_cast<double>(now - status.started.monotonic_ns) * 1e-9;
  status.step = step;
  if (status.steps > 0) {
    status.fraction = stage_begin_ + (stage_end_ - stage_begin_) *
                                         std::min(1.0, static_cast<double>(step) /
                                                           static_cast<double>(status.steps));
  }
  // Estimate from this stage's pace only, because the stage before may have waited for a scan.
  const double done = status.fraction - stage_begin_,
               in_stage = static_cast<double>(now - stage_ns_) * 1e-9;
  if (done > 0) status.eta_seconds = in_stage * (1 - status.fraction) / done;
  status.history.push_back(
      {.stage = status.stage, .step = step, .residual_norm = residual_norm, .seconds = seconds});
  if (status.history.size() > kJobHistoryKept) status.history.erase(status.history.begin());
  ++status.step_count;
  ++status.event_count;
}

void RunningJob::Log(const std::string& text) {
  MutexLock lock(table_.mutex());
  table_.Record(*job_, text);
}

void RunningJob::Warn(const std::string& text) {
  MutexLock lock(table_.mutex());
  table_.Warn(*job_, text);
}

absl::Status RunningJob::Buffer(const std::function<absl::Status(int64_t charge)>& take) {
  if (buffer_taken_ || job_->plans.at(job_->device).buffer_bytes == 0)
    return absl::InternalError("the job has no buffer planned, or has made it");
  OCTAVO_RETURN_IF_ERROR(take(job_->charges.back()));
  job_->charges.pop_back();
  buffer_taken_ = true;
  return absl::OkStatus();
}

void RunningJob::Found(JobFinding finding) {
  MutexLock lock(table_.mutex());
  job_->status.finding = std::move(finding);
  ++job_->status.event_count;
}

}  // namespace octavo::job
