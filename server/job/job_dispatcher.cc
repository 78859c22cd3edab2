#include "server/job/job_dispatcher.h"

#include <string>
#include <utility>

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/job/job_admission.h"
#include "server/memory/ledger.h"
#include "server/security/rights.h"

namespace octavo::job {

absl::StatusOr<JobStatus> JobDispatcher::Submit(const JobPtr& job) {
  MutexLock lock(table_.mutex());
  OCTAVO_ASSIGN_OR_RETURN(JobStatus answer, table_.Insert(job));
  (void)Failpoint("job_queued");
  table_.ForgetOld();
  Dispatch();
  answer = table_.StatusOf(*job);
  return answer;
}

void JobDispatcher::End(const JobPtr& job) {
  {
    MutexLock lock(table_.mutex());
    workers_.SetIdle(job->device, job);
    JobPtr& turn = TurnOf(job->device);
    if (turn == job) turn.reset();
    Dispatch();
  }
  services_.observer->OnJobsChanged();
}

void JobDispatcher::Tick() {
  bool changed = false;
  std::vector<std::unique_ptr<JobWork>> gone;  // release what they held outside the lock
  {
    MutexLock lock(table_.mutex());
    if (table_.AnyWaits()) changed = Dispatch();
    gone.swap(gone_);
  }
  workers_.JoinEnded();
  if (changed) services_.observer->OnJobsChanged();
}

void JobDispatcher::Stop() {
  MutexLock lock(table_.mutex());
  ends_ = true;
}

void JobDispatcher::GiveUp(const JobPtr& job) {
  {
    MutexLock lock(table_.mutex());
    JobPtr& turn = TurnOf(job->device);
    if (turn == job) turn.reset();
    Dispatch();
  }
  services_.observer->OnJobsChanged();
}

absl::Status JobDispatcher::Take(const JobPtr& job, const std::stop_token& stop) {
  {
    MutexLock lock(table_.mutex());
    job->returned = ++returns_;
    Dispatch();
    if (TurnOf(job->device) != job)
      table_.Record(*job, "waits for its device, which another job has meanwhile");
  }
  services_.observer->OnJobsChanged();
  // The stop is requested under the table's lock, so the wait below cannot miss it.
  const std::stop_callback wake(stop, [this] { turn_given_.NotifyAll(); });
  MutexLock lock(table_.mutex());
  const JobPtr& turn = TurnOf(job->device);
  while (turn != job && !stop.stop_requested()) turn_given_.Wait(lock);
  job->returned = 0;
  return turn == job ? absl::OkStatus() : absl::CancelledError("cancelled");
}

// Assigns free devices to jobs as long as possible. True if anything changed.
bool JobDispatcher::Dispatch() {
  bool changed = false;
  // Tick retries after a failure.
  const absl::Status status = base::ExceptionToStatus([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    while (!ends_ && DispatchOne(&changed)) changed = true;
    return absl::OkStatus();
  });
  if (!status.ok())
    Log(LogLevel::kError, "jobs could not be given devices", {{"error", status.ToString()}});
  return changed;
}

// Assigns a device to one job; false if none can begin. At equal priority, jobs that return to
// their device come first: they have waited for it once, and their memory is not free before they
// end.
bool JobDispatcher::DispatchOne(bool* changed) {
  const std::vector<JobPtr> waiting = table_.Waiting();
  auto next = waiting.begin();
  for (const JobPtr& job : table_.Returning()) {
    for (; next != waiting.end() && (*next)->status.spec.priority > job->status.spec.priority;
         ++next) {
      if (Begin(*next, changed)) return true;
    }
    JobPtr& turn = TurnOf(job->device);
    if (turn != nullptr) continue;
    turn = job;
    job->returned = 0;
    table_.Served(*job);
    turn_given_.NotifyAll();
    return true;
  }
  for (; next != waiting.end(); ++next) {
    if (Begin(*next, changed)) return true;
  }
  return false;
}

// Starts the job if one of its devices is free and has the memory; otherwise sets the reason why it
// waits.
bool JobDispatcher::Begin(const JobPtr& job, bool* changed) {
  JobStatus& status = job->status;
  const int devices = services_.devices.size();
  bool healthy = false;
  Reason code = Reason::kWaitingForDevice;
  std::string reason = "its device is busy";
  for (int i = 0; i < devices; ++i) {
    const int d = (next_device_ + i) % devices;
    auto plan = job->plans.find(d);
    if (plan == job->plans.end() || !services_.devices.device(d).Health().ok()) continue;
    healthy = true;
    JobPtr& turn = TurnOf(d);
    if (turn != nullptr) continue;
    if (const absl::Status worker = workers_.Prepare(d); !worker.ok()) {
      code = Reason::kWaitingForThread;
      reason = std::string(worker.message());
      continue;
    }
    const memory::Ledger::Needs needs = JobAdmission::NeedsOf(plan->second);
    const security::Owner owner = security::OwnerOf(status.spec.caller.principal);
    // First what costs little: all that wait are looked at again and again.
    if (const absl::Status quota = services_.ledger->CheckQuotaNow(needs, owner); !quota.ok()) {
      code = Reason::kWaitingForMemory;
      reason = std::string(quota.message());
      continue;
    }
    auto charges =
        services_.ledger->Reserve(d, status.name, status.spec.title, needs, nullptr, owner);
    if (!charges.ok()) {
      code = Reason::kWaitingForMemory;
      reason = std::string(charges.status().message());
      continue;
    }
    memory::ChargeHolder held(services_.ledger, *std::move(charges));
    job->device = d;
    status.device = services_.devices.names().Name(d);
    status.plan = plan->second.text;
    status.memory_bytes = plan->second.bytes();
    table_.SetState(*job, JobState::kRunning, Reason::kNone, "");
    job->charges = held.Keep();
    turn = job;
    workers_.Give(d, job);
    next_device_ = (d + 1) % devices;
    table_.Served(*job);
    return true;
  }
  if (!healthy) {
    gone_.push_back(std::move(job->work));
    const std::string down = "no device that the job could run on is healthy any more";
    status.error = WithInfo(absl::UnavailableError(down),
                            {.reason = Reason::kDeviceDown, .field = "", .numbers = {}});
    table_.SetState(*job, JobState::kFailed, Reason::kDeviceDown, down);
    *changed = true;
  } else if (status.reason_code != code || status.reason != reason) {
    status.reason_code = code;
    status.reason = reason;
    ++status.event_count;
    *changed = true;
  }
  return false;
}

}  // namespace octavo::job
