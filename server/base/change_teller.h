#pragma once

#include <functional>
#include <future>
#include <utility>

#include "server/base/worker_pool.h"

namespace octavo::base {

/// A thread of low priority that tells of changes in the order in which they were queued: a thread
/// that makes changes, such as one of a running scan, works for none of those who want to hear of
/// them. The destructor tells what is queued. Thread-safe.
class ChangeTeller {
 public:
  /// `tell` runs on the thread. What it throws is logged.
  void Post(std::function<void()> tell) { thread_.Post(std::move(tell)); }

  /// Returns when what was queued before has been told. Not to be called from the thread.
  void Flush() {
    std::promise<void> told;
    Post([&told] { told.set_value(); });
    told.get_future().wait();
  }

 private:
  WorkerPool thread_{"oct-tell", 1, /*niceness=*/5};
};

}  // namespace octavo::base
