#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/base/mutex.h"

namespace octavo::base {

/// A fixed number of threads that run tasks in the order of posting. The destructor finishes posted
/// tasks.
class WorkerPool {
 public:
  /// `niceness`: of the threads, 0 to 19; values above 0 leave the cores to the acquisition
  /// threads.
  WorkerPool(const char* name, int threads, int niceness = 0);
  ~WorkerPool();
  void Post(std::function<void()> task);
  /// False, without posting, while `most` tasks are posted and not finished.
  bool TryPost(int most, std::function<void()> task);
  /// Tasks posted and not finished.
  int Pending();

 private:
  void Run();
  Mutex mutex_;
  CondVar cv_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  int pending_ ABSL_GUARDED_BY(mutex_) = 0;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace octavo::base
