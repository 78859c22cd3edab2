#include "gpu/device/host/host_stream.h"

#include <new>
#include <optional>
#include <utility>

#include "tbb/task_arena.h"

namespace octavo::inline gpu::host {

absl::StatusOr<bool> HostEvent::Query() {
  MutexLock lock(state_->mutex);
  if (state_->passed < state_->recorded) return false;
  if (!state_->status.ok()) return state_->status;
  if (absl::Status health = health_->Check(); !health.ok()) return health;
  return true;
}

absl::Status HostEvent::Synchronize() {
  MutexLock lock(state_->mutex);
  const uint64_t mark = state_->recorded;
  while (state_->passed < mark) state_->cv.Wait(lock);
  return state_->status.ok() ? health_->Check() : state_->status;
}

HostStream::HostStream(std::shared_ptr<HostHealth> health, int most_threads)
    : health_(std::move(health)),
      most_threads_(most_threads),
      ring_(64),
      thread_(StreamThreads::OfProcess(), [this] { Run(); }) {}

HostStream::~HostStream() {
  MutexLock lock(mutex_);
  end_ = true;
  cv_.NotifyAll();
}

void HostStream::Push(Entry entry) {
  MutexLock lock(mutex_);
  if (count_ == ring_.size()) {
    std::vector<Entry> larger(ring_.size() * 2);
    for (size_t i = 0; i < count_; ++i) larger[i] = std::move(ring_[(head_ + i) % ring_.size()]);
    ring_ = std::move(larger);
    head_ = 0;
  }
  ring_[(head_ + count_++) % ring_.size()] = std::move(entry);
  cv_.NotifyAll();
}

void HostStream::Run() {
  const absl::Status no_memory =
      absl::ResourceExhaustedError("the host has no memory left for a stream's work");
  // It is the stream's own: this thread always has its place in it, so that no stream waits for
  // another one's work.
  std::optional<tbb::task_arena> arena;
  if (most_threads_ > 0) arena.emplace(most_threads_, 1, tbb::task_arena::priority::low);
  for (;;) {
    Entry entry;
    {
      MutexLock lock(mutex_);
      while (count_ == 0 && !end_) cv_.Wait(lock);
      if (count_ == 0) return;
      entry = std::move(ring_[head_]);
      head_ = (head_ + 1) % ring_.size();
      --count_;
    }
    if (status_.ok()) status_ = health_->Check();
    if (!status_.ok() && !entry.always) continue;
    absl::Status status;
    try {
      // What is always done waits for other streams, and does no work.
      status = arena.has_value() && !entry.always ? arena->execute([&] { return entry.task(); })
                                                  : entry.task();
    } catch (const std::bad_alloc&) {  // it must not end the thread with the process
      status = no_memory;
    }
    if (status_.ok()) status_ = std::move(status);
  }
}

absl::Status HostStream::Record(EventBase& event) {
  auto state = static_cast<HostEvent&>(event).state();
  uint64_t mark;
  {
    MutexLock lock(state->mutex);
    mark = ++state->recorded;
  }
  Push({Task([this, state = std::move(state), mark] {
          MutexLock lock(state->mutex);
          if (state->passed < mark) state->passed = mark;
          state->status = status_;
          state->cv.NotifyAll();
          return absl::OkStatus();
        }),
        /*always=*/true});
  return absl::OkStatus();
}

absl::Status HostStream::Wait(EventBase& event) {
  auto state = static_cast<HostEvent&>(event).state();
  uint64_t mark;
  {
    MutexLock lock(state->mutex);
    mark = state->recorded;
    if (state->passed >= mark) return absl::OkStatus();
  }
  Push({Task([state = std::move(state), mark] {
          MutexLock lock(state->mutex);
          while (state->passed < mark) state->cv.Wait(lock);
          return state->status;
        }),
        /*always=*/true});
  return absl::OkStatus();
}

absl::Status HostStream::Synchronize() {
  HostEvent event(health_);
  if (absl::Status status = Record(event); !status.ok()) return status;
  return event.Synchronize();
}

}  // namespace octavo::inline gpu::host
