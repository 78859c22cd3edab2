#include "server/job/job_workers.h"

#include <algorithm>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "gpu/base/failpoint.h"
#include "server/base/exception_to_status.h"

namespace octavo::job {
namespace {

/// Makes the calling thread nicer. The threads of host streams that it opens get the same niceness;
/// how many cores these use is kMostOfCores of gpu/backend/host/host_device.h.
void LowerPriority() {
  constexpr int kNicer = 5, kNicest = 19;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // of this thread
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), std::min(now + kNicer, kNicest));
}

}  // namespace

JobWorkers::JobWorkers(int devices, RunJob run, bool host_for_jobs)
    : names_(devices, host_for_jobs), run_(std::move(run)) {
  MutexLock lock(mutex_);
  workers_.resize(static_cast<size_t>(devices));
}

JobWorkers::~JobWorkers() { Shutdown(); }

void JobWorkers::Shutdown() {
  std::vector<std::jthread*> threads;  // none leaves any more
  {
    MutexLock lock(mutex_);
    ends_ = true;
    for (const Workers& workers : workers_) {
      for (const auto& worker : workers) threads.push_back(&worker->thread);
    }
    given_.NotifyAll();
  }
  for (std::jthread* const thread : threads) thread->join();
  JoinEnded();
  MutexLock lock(mutex_);
  for (Workers& workers : workers_) workers.clear();
}

absl::Status JobWorkers::Prepare(int device) {
  return base::ExceptionToStatus([&]() -> absl::Status {
    MutexLock lock(mutex_);
    Workers& workers = workers_[static_cast<size_t>(device)];
    if (std::any_of(workers.begin(), workers.end(),
                    [](const auto& worker) { return worker->job == nullptr; }))
      return absl::OkStatus();
    workers.reserve(workers.size() + 1);
    auto made = std::make_unique<Worker>();
    Worker& worker = *made;
    (void)Failpoint("thread_started");
    worker.thread = std::jthread([this, device, &worker] {
      pthread_setname_np(pthread_self(), "oct-job");
      if (names_.IsForJobs(device)) LowerPriority();
      Work(device, worker);
    });
    workers.push_back(std::move(made));
    return absl::OkStatus();
  });
}

void JobWorkers::Give(int device, const JobPtr& job) {
  MutexLock lock(mutex_);
  for (const auto& worker : workers_[static_cast<size_t>(device)]) {
    if (worker->job != nullptr) continue;
    worker->job = job;
    given_.NotifyAll();
    return;
  }
}

void JobWorkers::SetIdle(int device, const JobPtr& job) {
  MutexLock lock(mutex_);
  for (const auto& worker : workers_[static_cast<size_t>(device)]) {
    if (worker->job == job) worker->job.reset();
  }
}

void JobWorkers::JoinEnded() {
  Workers left;
  {
    MutexLock lock(mutex_);
    left.swap(left_);
  }
  for (const auto& worker : left) worker->thread.join();
}

int JobWorkers::Busy(int device) {
  MutexLock lock(mutex_);
  const Workers& workers = workers_[static_cast<size_t>(device)];
  return static_cast<int>(std::count_if(workers.begin(), workers.end(),
                                        [](const auto& worker) { return worker->job != nullptr; }));
}

void JobWorkers::Work(int device, Worker& worker) {
  for (;;) {
    JobPtr job;
    {
      MutexLock lock(mutex_);
      while (worker.job == nullptr && !ends_) given_.Wait(lock);
      if (worker.job == nullptr) return;
      job = worker.job;
    }
    run_(job, worker.stream);
    MutexLock lock(mutex_);
    if (worker.job == job) worker.job.reset();
    if (Leaves(device, worker)) return;
  }
}

// True if the worker is idle and another one is, too.
bool JobWorkers::Leaves(int device, const Worker& worker) {
  Workers& workers = workers_[static_cast<size_t>(device)];
  if (ends_ || worker.job != nullptr) return false;
  if (std::none_of(workers.begin(), workers.end(),
                   [&](const auto& w) { return w.get() != &worker && w->job == nullptr; }))
    return false;
  const auto it = std::find_if(workers.begin(), workers.end(),
                               [&](const auto& w) { return w.get() == &worker; });
  left_.push_back(std::move(*it));
  workers.erase(it);
  return true;
}

}  // namespace octavo::job
