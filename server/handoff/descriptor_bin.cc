#include "server/handoff/descriptor_bin.h"

#include <deque>
#include <fcntl.h>
#include <pthread.h>
#include <thread>
#include <utility>

#include "gpu/base/mutex.h"

namespace octavo::handoff {

struct DescriptorBin::Heap {
  Mutex mutex;
  CondVar cv;
  std::deque<UniqueFd> waiting ABSL_GUARDED_BY(mutex);
  bool closing ABSL_GUARDED_BY(mutex) = false;  // the thread is at one
  bool started ABSL_GUARDED_BY(mutex) = false;
  bool end ABSL_GUARDED_BY(mutex) = false;

  void Run() {
    for (;;) {
      UniqueFd next;  // closed without the lock
      MutexLock lock(mutex);
      closing = false;
      while (waiting.empty() && !end) cv.Wait(lock);
      if (waiting.empty()) return;
      next = std::move(waiting.front());
      waiting.pop_front();
      closing = true;
    }
  }
};

DescriptorBin::DescriptorBin() : heap_(std::make_shared<Heap>()) {}

DescriptorBin::~DescriptorBin() {
  MutexLock lock(heap_->mutex);
  heap_->end = true;
  heap_->cv.NotifyAll();
}

void DescriptorBin::Close(std::vector<UniqueFd> descriptors) {
  for (UniqueFd& descriptor : descriptors) {
    if (::fcntl(descriptor.get(), F_GET_SEALS) >= 0) {
      const UniqueFd closed = std::move(descriptor);
      continue;
    }
    MutexLock lock(heap_->mutex);
    if (!heap_->started) {
      std::thread([heap = heap_] {
        pthread_setname_np(pthread_self(), "oct-close");
        heap->Run();
      }).detach();
      heap_->started = true;
    }
    heap_->waiting.push_back(std::move(descriptor));
    heap_->cv.NotifyAll();
  }
}

bool DescriptorBin::full() {
  MutexLock lock(heap_->mutex);
  return heap_->waiting.size() + (heap_->closing ? 1 : 0) >= kMost;
}

}  // namespace octavo::handoff
