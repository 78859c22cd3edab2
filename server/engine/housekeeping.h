#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/base/mutex.h"

namespace octavo::engine {

/// A timer of the engine: a thread that runs each task again and again, at the task's own period.
/// Tasks run one at a time. Periods use the steady clock; a task that depends on another clock must
/// check itself what is due.
class Housekeeping {
 public:
  struct Task {
    std::string name;  // for the log
    std::chrono::milliseconds period;
    std::function<void()> run;
  };
  /// `thread`: the name of its thread.
  Housekeeping(std::string thread, std::vector<Task> tasks);
  ~Housekeeping();

  /// Runs all tasks once, on the calling thread, whether they are due or not.
  void RunNow();
  /// Waits for the running task and ends the thread. Idempotent.
  void Stop();

 private:
  void Run();
  void RunTask(const Task& task);

  const std::string name_;
  const std::vector<Task> tasks_;
  Mutex task_mutex_;  // held while a task runs
  Mutex mutex_;
  CondVar wake_;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace octavo::engine
