#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace octavo::testing {

/// For a test that waits, without sleeping, for what other threads bring about: they tell that
/// something has changed, it looks again.
class News {
 public:
  void Tell() {
    std::lock_guard lock(mutex_);
    ++told_;
    changed_.notify_all();
  }
  /// Until `when()` is true; it is asked without a lock. With `look_again` it is asked so often
  /// even if nobody tells anything.
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
