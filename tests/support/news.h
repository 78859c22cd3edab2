#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace octavo::testing {

/// Lets a test wait, without sleeping, for effects of other threads: those threads signal a change,
/// and the test checks again.
class News {
 public:
  void Tell() {
    std::lock_guard lock(mutex_);
    ++told_;
    changed_.notify_all();
  }
  /// Waits until `when()` returns true; calls it without a lock. With `look_again`, also calls it
  /// at that interval without a signal.
  template <class F>
  void Await(F when, std::chrono::milliseconds look_again = std::chrono::hours(1)) {
    for (;;) {
      std::unique_lock lock(mutex_);
      const int64_t seen = told_;
      lock.unlock();
      if (when()) return;
      lock.lock();
      changed_.wait_for(lock, look_again, [&] { return told_ != seen; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t told_ = 0;
};

}  // namespace octavo::testing
