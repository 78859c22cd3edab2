#include "server/engine/housekeeping.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "gpu/base/log.h"
#include "server/base/exception_to_status.h"

namespace octavo::engine {

Housekeeping::Housekeeping(std::string thread, std::vector<Task> tasks)
    : name_(std::move(thread)), tasks_(std::move(tasks)), thread_([this] { Run(); }) {}

Housekeeping::~Housekeeping() { Stop(); }

void Housekeeping::Stop() {
  {
    MutexLock lock(mutex_);
    end_ = true;
    wake_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Housekeeping::RunNow() {
  for (const Task& task : tasks_) RunTask(task);
}

void Housekeeping::RunTask(const Task& task) {
  MutexLock lock(task_mutex_);
  // One task that finds no memory must not end the server, nor the others' turns.
  const absl::Status status = base::ExceptionToStatus([&]() -> absl::Status {
    task.run();
    return absl::OkStatus();
  });
  if (!status.ok()) {
    Log(LogLevel::kError, "a task of the housekeeping failed",
        {{"task", task.name}, {"error", status.ToString()}});
  }
}

void Housekeeping::Run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  using SteadyClock = std::chrono::steady_clock;
  std::vector<SteadyClock::time_point> due(tasks_.size(), SteadyClock::now());
  for (;;) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (SteadyClock::now() < due[i]) continue;
      RunTask(tasks_[i]);
      due[i] = SteadyClock::now() + tasks_[i].period;
    }
    MutexLock lock(mutex_);
    if (end_) return;
    const auto next = *std::min_element(due.begin(), due.end());
    const auto now = SteadyClock::now();
    if (next > now) wake_.WaitFor(lock, std::chrono::ceil<std::chrono::milliseconds>(next - now));
    if (end_) return;
  }
}

}  // namespace octavo::engine
