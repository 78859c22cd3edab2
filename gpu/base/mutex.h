#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace octavo::inline gpu {

// std::mutex with clang's thread-safety annotations. Not absl::Mutex: ThreadSanitizer reports
// correctly locked data as races through Debian's uninstrumented abseil.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  std::mutex& native() ABSL_LOCK_RETURNED(this) { return mutex_; }

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.native()) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Waits release the lock held by `lock`. Loop on the condition yourself, so that the analysis sees
// the guarded reads.
class CondVar {
 public:
  void Wait(MutexLock& lock) { cv_.wait(lock.native()); }
  template <class Duration>
  bool WaitFor(MutexLock& lock, Duration timeout) {
    return cv_.wait_for(lock.native(), timeout) == std::cv_status::no_timeout;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace octavo::inline gpu
