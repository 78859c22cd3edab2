// The work of a worker: it runs a job, publishes the results, and records how the job ended.

#include <utility>

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/job/internal.h"

namespace octavo::job {

void JobQueue::Work(int device, Worker& worker) {
  for (;;) {
    std::shared_ptr<Entry> entry;
    {
      MutexLock lock(mutex_);
      while (worker.entry == nullptr && !ends_) cv_.Wait(lock);
      if (worker.entry == nullptr) return;
      entry = worker.entry;
    }
    context_.observer->OnJobsChanged();
    Execute(entry, device, worker.stream);
    bool leaves = false;
    {
      MutexLock lock(mutex_);
      worker.entry.reset();
      Lane& lane = lanes_[static_cast<size_t>(device)];
      if (lane.turn == entry) lane.turn.reset();
      DispatchLocked();
      leaves = LeavesLocked(device, worker);
    }
    context_.observer->OnJobsChanged();
    if (leaves) return;
  }
}

void JobQueue::Execute(const std::shared_ptr<Entry>& entry, int device, Stream& stream) {
  absl::Status status = absl::OkStatus();
  if (!stream) {
    auto made = context_.devices.device(device).NewStream(StreamPriority::kLow);
    status = made.status();
    if (made.ok()) stream = *std::move(made);
  }
  {
    Running run(*this, entry, context_.devices.device(device), stream.ref());
    if (status.ok()) {
      status = base::ExceptionToStatus([&]() -> absl::Status {
        OCTAVO_RETURN_IF_ERROR(run.Begin());
        return entry->work->Run(run, entry->stop.get_token());
      });
    }
    // All work that the job enqueued must finish before any of its memory is freed.
    if (stream) {
      const absl::Status over = stream.ref().Synchronize();
      if (status.ok()) status = over;
    }
    if (status.ok() && !entry->stop.stop_requested())
      status = base::ExceptionToStatus([&] { return run.Finish(); });
    bool held = false;
    {
      MutexLock lock(mutex_);
      held = status.ok() && !entry->stop.stop_requested();
      entry->finishing = held;  // too late for a cancel
    }
    run.Close(held, status);
  }  // frees its memory
  entry->work.reset();
  for (const auto id : entry->charges) context_.ledger->Release(id);
  entry->charges.clear();
  MutexLock lock(mutex_);
  JobStatus& job = entry->status;
  if (entry->finishing) {
    job.fraction = 1;
    SetStateLocked(*entry, JobState::kDone, Name(Reason::kCompleted), "");
  } else if (entry->stop.stop_requested()) {
    job.volumes.clear();
    // the reason given with the cancellation
    const std::string code = job.reason_code, reason = job.reason;
    SetStateLocked(*entry, JobState::kCancelled, code, reason);
  } else {
    job.volumes.clear();
    SetStateLocked(*entry, JobState::kFailed, ReasonOrCode(status), std::string(status.message()));
  }
  octavo::Log(job.state == JobState::kFailed ? LogLevel::kError : LogLevel::kInfo, "job ended",
              {{"job", job.name},
               {"kind", job.kind},
               {"state", Name(job.state)},
               {"reason", job.reason_code},
               {"text", job.reason}});
}

}  // namespace octavo::job
