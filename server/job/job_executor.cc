#include "server/job/job_executor.h"

#include <string>
#include <utility>

#include "gpu/base/log.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/job/running_job.h"

namespace octavo::job {

void JobExecutor::Execute(const JobPtr& job, Stream& stream) {
  absl::Status status = absl::OkStatus();
  if (!stream) {
    auto made = services_.devices.device(job->device).NewStream(StreamPriority::kLow);
    status = made.status();
    if (made.ok()) stream = *std::move(made);
  }
  {
    RunningJob run(services_, table_, turns_, job, stream.ref());
    if (status.ok()) {
      status = base::ExceptionToStatus([&]() -> absl::Status {
        OCTAVO_RETURN_IF_ERROR(run.results().Begin());
        return job->work->Run(run, job->stop.get_token());
      });
    }
    // All work that the job enqueued must finish before any of its memory is freed.
    if (stream) {
      const absl::Status over = stream.ref().Synchronize();
      if (status.ok()) status = over;
    }
    if (status.ok() && !job->stop.stop_requested())
      status = base::ExceptionToStatus([&] { return run.results().Finish(); });
    bool held = false;
    {
      MutexLock lock(table_.mutex());
      held = status.ok() && !job->stop.stop_requested();
      job->finishing = held;  // too late for a cancel
    }
    run.results().Close(held, status);
    if (held) {
      if (absl::Status published = PublishBuffer(*job); !published.ok()) status = published;
    }
  }  // frees its memory
  job->work.reset();
  for (const auto id : job->charges) services_.ledger->Release(id);
  job->charges.clear();
  Conclude(*job, status);
}

absl::Status JobExecutor::PublishBuffer(JobEntry& job) {
  std::string buffer;
  const absl::Status published = base::ExceptionToStatus([&] {
    buffer = job.work->PublishBuffer();
    return absl::OkStatus();
  });
  MutexLock lock(table_.mutex());
  job.finishing = published.ok();  // else it fails
  job.status.buffer = std::move(buffer);
  return published;
}

void JobExecutor::Conclude(JobEntry& job, const absl::Status& status) {
  MutexLock lock(table_.mutex());
  JobStatus& now = job.status;
  if (job.finishing) {
    now.fraction = 1;
    table_.SetState(job, JobState::kDone, Reason::kCompleted, "");
  } else if (job.stop.stop_requested()) {
    // the reason given with the cancellation
    const std::string reason = now.reason;
    table_.SetState(job, JobState::kCancelled, now.reason_code, reason);
  } else {
    now.error = status;
    table_.SetState(job, JobState::kFailed, ReasonOrCode(status), std::string(status.message()));
  }
  octavo::Log(now.state == JobState::kFailed ? LogLevel::kError : LogLevel::kInfo, "job ended",
              {{"job", now.name},
               {"kind", Name(now.kind)},
               {"state", Name(now.state)},
               {"reason", std::string(Name(now.reason_code))},
               {"text", now.reason}});
}

}  // namespace octavo::job
