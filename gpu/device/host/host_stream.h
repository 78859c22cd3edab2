#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/device/host/stream_threads.h"
#include "gpu/device/stream.h"

namespace octavo::inline gpu::host {

/// A piece of enqueued work, stored in place so that enqueueing allocates nothing.
class Task {
 public:
  static constexpr size_t kBytes = 320;

  Task() = default;
  template <class F>
  explicit Task(F f) {
    static_assert(sizeof(F) <= kBytes && alignof(F) <= alignof(std::max_align_t), "capture less");
    new (storage_.data()) F(std::move(f));
    run_ = [](void* p) -> absl::Status { return (*static_cast<F*>(p))(); };
    move_ = [](void* from, void* to) {
      if (to != nullptr) new (to) F(std::move(*static_cast<F*>(from)));
      static_cast<F*>(from)->~F();
    };
  }
  Task(Task&& other) noexcept { Take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      Clear();
      Take(other);
    }
    return *this;
  }
  ~Task() { Clear(); }
  absl::Status operator()() { return run_(storage_.data()); }

 private:
  void Take(Task& other) {
    run_ = std::exchange(other.run_, nullptr);
    move_ = std::exchange(other.move_, nullptr);
    if (move_ != nullptr) move_(other.storage_.data(), storage_.data());
  }
  void Clear() {
    if (move_ != nullptr) move_(storage_.data(), nullptr);
    move_ = nullptr;
  }
  alignas(std::max_align_t) std::array<std::byte, kBytes> storage_;
  absl::Status (*run_)(void*) = nullptr;
  void (*move_)(void*, void*) = nullptr;
};

/// Whether a host device may still be used; shared by everything made on it. The host never fails;
/// only a test marks it as lost.
class HostHealth {
 public:
  absl::Status Check() {
    if (!lost_.load(std::memory_order_acquire)) return absl::OkStatus();
    MutexLock lock(mutex_);
    return status_;
  }
  /// Keeps the first reason.
  void Lose(const absl::Status& status) {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
    lost_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> lost_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

/// State of an event: recorded `wanted` times, passed `passed` times.
class HostEvent final : public EventBase {
 public:
  explicit HostEvent(std::shared_ptr<HostHealth> health) : health_(std::move(health)) {}
  absl::StatusOr<bool> Query() override;
  absl::Status Synchronize() override;

  struct State {
    Mutex mutex;
    CondVar cv;
    uint64_t recorded ABSL_GUARDED_BY(mutex) = 0, passed ABSL_GUARDED_BY(mutex) = 0;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  const std::shared_ptr<HostHealth> health_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// A FIFO with a thread of its own (stream_threads.h): the host's counterpart of a CUDA stream,
/// with the same asynchronous meaning. The first error of a task sticks: later tasks are skipped,
/// and events and Synchronize return it.
class HostStream final : public StreamBase {
 public:
  /// `most_threads`: at most so many threads, its own among them, work on a task, and oneTBB serves
  /// other work first; 0 = as many as there are cores.
  explicit HostStream(std::shared_ptr<HostHealth> health, int most_threads = 0);
  ~HostStream() override;
  absl::Status Record(EventBase& event) override;
  absl::Status Wait(EventBase& event) override;
  absl::Status Synchronize() override;
  /// Returns at once. Allocates only when the queue becomes longer than ever before.
  void Enqueue(Task task) { Push({std::move(task), /*always=*/false}); }

 private:
  struct Entry {
    Task task;
    bool always = false;  // runs after an error too: events must pass
  };
  void Push(Entry entry);
  void Run();
  const std::shared_ptr<HostHealth> health_;
  const int most_threads_;
  Mutex mutex_;
  CondVar cv_;
  std::vector<Entry> ring_ ABSL_GUARDED_BY(mutex_);
  size_t head_ ABSL_GUARDED_BY(mutex_) = 0, count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;  // stream thread only
  StreamThreads::Thread thread_;
};

inline HostStream& AsHost(StreamRef stream) { return static_cast<HostStream&>(*stream.base()); }

/// Enqueues f() on a stream of a host device. f returns nothing, or a Status whose error ends the
/// stream's work. Returns at once and always OK: the host's operators end with `return Enqueue(…)`,
/// as CUDA's end with the status of a launch.
template <class F>
absl::Status Enqueue(StreamRef stream, F f) {
  AsHost(stream).Enqueue(Task([f = std::move(f)]() mutable -> absl::Status {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
      f();
      return absl::OkStatus();
    } else {
      return f();
    }
  }));
  return absl::OkStatus();
}

}  // namespace octavo::inline gpu::host
