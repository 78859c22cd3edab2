#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/base/mutex.h"

namespace octavo::inline gpu::host {

/// The threads of host streams. One whose stream has ended serves a later stream: oneTBB makes an
/// arena (of 3 KiB for each core) for each thread that has work done in parallel, and after the end
/// of the thread it frees the arena only when one of its workers has come by. Where all cores are
/// busy, streams come and go faster than that, and arenas would add up. Thread-safe.
class StreamThreads {
 public:
  /// A thread without a stream ends after `patience`.
  explicit StreamThreads(std::chrono::milliseconds patience) : patience_(patience) {}
  /// Call after all Threads have ended.
  ~StreamThreads();
  StreamThreads(const StreamThreads&) = delete;
  StreamThreads& operator=(const StreamThreads&) = delete;

  /// Those of the process. They are never destroyed.
  static StreamThreads& OfProcess();

  /// A thread that runs one function.
  class Thread;

  /// How many there are, at work or not.
  size_t Count() const;

 private:
  struct Worker;

  /// A thread of the caller's niceness. Throws as std::thread if there can be none more.
  Worker* Start(std::function<void()> run);
  /// Waits until the worker's function has returned.
  void Join(Worker* worker) noexcept;
  // of the workers' threads
  void Work(Worker& me);
  /// Waits for a function; false if the thread is to end.
  bool WaitForRun(Worker& me);
  void HasRun(Worker& me);

  const std::chrono::milliseconds patience_;
  mutable Mutex mutex_;
  CondVar gone_;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  // The one that ran last at the back. Has room for all workers, so that Join needs no memory.
  std::vector<Worker*> idle_ ABSL_GUARDED_BY(mutex_);
};

class StreamThreads::Thread {
 public:
  /// Throws as std::thread.
  Thread(StreamThreads& threads, std::function<void()> run)
      : threads_(threads), worker_(threads.Start(std::move(run))) {}
  /// Waits until the function has returned.
  ~Thread() { threads_.Join(worker_); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

 private:
  StreamThreads& threads_;
  Worker* const worker_;
};

}  // namespace octavo::inline gpu::host
