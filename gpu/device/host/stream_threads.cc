#include "gpu/device/host/stream_threads.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <pthread.h>
#include <sys/resource.h>
#include <thread>

#include "absl/cleanup/cleanup.h"

namespace octavo::inline gpu::host {

/// The lock of the threads guards it, but the thread runs its function without.
struct StreamThreads::Worker {
  CondVar wake, has_run;
  std::function<void()> run;  // null: none
  int niceness = 0;           // as a new thread, it has that of who started it
};

StreamThreads& StreamThreads::OfProcess() {
  static auto* const threads = new StreamThreads(std::chrono::minutes(1));
  return *threads;
}

StreamThreads::~StreamThreads() {
  MutexLock lock(mutex_);
  end_ = true;
  for (Worker* const worker : idle_) worker->wake.NotifyOne();
  while (count_ > 0) gone_.Wait(lock);
}

size_t StreamThreads::Count() const {
  MutexLock lock(mutex_);
  return count_;
}

StreamThreads::Worker* StreamThreads::Start(std::function<void()> run) {
  const int niceness = ::getpriority(PRIO_PROCESS, 0);  // of this thread
  {
    MutexLock lock(mutex_);
    const auto last = std::find_if(idle_.rbegin(), idle_.rend(), [&](const Worker* worker) {
      return worker->niceness == niceness;
    });
    if (last != idle_.rend()) {
      Worker* const worker = *last;
      idle_.erase(std::prev(last.base()));
      worker->run = std::move(run);
      worker->wake.NotifyOne();
      return worker;
    }
    idle_.reserve(count_ + 1);
    ++count_;
  }
  absl::Cleanup none = [this] {
    MutexLock lock(mutex_);
    --count_;
  };
  auto own = std::make_unique<Worker>();
  own->run = std::move(run);
  own->niceness = niceness;
  Worker* const worker = own.get();
  std::thread([this, own = std::move(own)] { Work(*own); }).detach();
  std::move(none).Cancel();
  return worker;
}

void StreamThreads::Join(Worker* worker) noexcept {
  MutexLock lock(mutex_);
  while (worker->run) worker->has_run.Wait(lock);
  idle_.push_back(worker);
}

void StreamThreads::Work(Worker& me) {
  pthread_setname_np(pthread_self(), "oct-stream");
  while (WaitForRun(me)) {
    me.run();
    HasRun(me);
  }
}

bool StreamThreads::WaitForRun(Worker& me) {
  MutexLock lock(mutex_);
  for (bool in_time = true; !me.run;) {
    // Whoever it ran for may not have joined it yet: then it is not among the idle ones.
    const auto place = std::find(idle_.begin(), idle_.end(), &me);
    if ((end_ || !in_time) && place != idle_.end()) {
      idle_.erase(place);
      --count_;
      gone_.NotifyAll();
      return false;
    }
    in_time = me.wake.WaitFor(lock, patience_);
  }
  return true;
}

void StreamThreads::HasRun(Worker& me) {
  MutexLock lock(mutex_);
  me.run = nullptr;
  me.has_run.NotifyAll();
}

}  // namespace octavo::inline gpu::host
