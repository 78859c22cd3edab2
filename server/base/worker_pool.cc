#include "server/base/worker_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "gpu/base/failpoint.h"
#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"

namespace octavo::base {

WorkerPool::WorkerPool(const char* name, int threads, int niceness) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name, niceness] {
      pthread_setname_np(pthread_self(), name);
      if (niceness > 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
      Run();
    });
  }
}

WorkerPool::~WorkerPool() {
  MutexLock lock(mutex_);
  end_ = true;
  cv_.NotifyAll();
}

void WorkerPool::Post(std::function<void()> task) {
  (void)Failpoint("task_posted");
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  ++pending_;
  cv_.NotifyOne();
}

bool WorkerPool::TryPost(int most, std::function<void()> task) {
  MutexLock lock(mutex_);
  if (pending_ >= most) return false;
  tasks_.push_back(std::move(task));
  ++pending_;
  cv_.NotifyOne();
  return true;
}

int WorkerPool::Pending() {
  MutexLock lock(mutex_);
  return pending_;
}

void WorkerPool::Run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !end_) cv_.Wait(lock);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (...) {  // a library's exception ends the task, not the process
      Log(LogLevel::kError, "a task broke off", {{"error", StatusOfException().ToString()}});
    }
    task = nullptr;  // destroy its captures before it counts as finished
    MutexLock lock(mutex_);
    --pending_;
  }
}

}  // namespace octavo::base
