#include "server/buffer/stream_ordering.h"

#include <pthread.h>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::buffer {

StreamOrdering::StreamOrdering(std::vector<Device*> devices) : devices_(std::move(devices)) {
  for (size_t d = 0; d < devices_.size(); ++d) {
    followers_.push_back(std::make_unique<Follower>());
    Follower& follower = *followers_.back();
    follower.thread = std::jthread([&follower] {
      pthread_setname_np(pthread_self(), "oct-follow");
      Follow(follower);
    });
  }
}

StreamOrdering::~StreamOrdering() {
  for (const auto& follower : followers_) {
    MutexLock lock(follower->mutex);
    follower->end = true;
    follower->cv.NotifyAll();
  }
  for (const auto& follower : followers_) follower->thread.join();
}

void StreamOrdering::Follow(Follower& follower) {
  for (;;) {
    Work work;
    {
      MutexLock lock(follower.mutex);
      while (follower.work.empty() && !follower.end) follower.cv.Wait(lock);
      if (follower.work.empty()) return;
      work = std::move(follower.work.front());
      follower.work.pop_front();
    }
    absl::Status status;
    for (const auto& event : work.events) {
      if (absl::Status passed = event->Synchronize(); status.ok()) status = std::move(passed);
    }
    if (work.stream) {
      if (absl::Status passed = work.stream.Synchronize(); status.ok()) status = std::move(passed);
    }
    work.keep.clear();
    if (work.done) work.done(status);
  }
}

void StreamOrdering::Add(int device, Work work) {
  Follower& follower = *followers_[static_cast<size_t>(device)];
  MutexLock lock(follower.mutex);
  follower.work.push_back(std::move(work));
  follower.cv.NotifyAll();
}

absl::StatusOr<StreamRef> StreamOrdering::Begin(int device) {
  Follower& follower = *followers_[static_cast<size_t>(device)];
  MutexLock lock(follower.mutex);
  if (follower.streams.size() < kStreams) {
    OCTAVO_ASSIGN_OR_RETURN(Stream stream,
                            devices_[static_cast<size_t>(device)]->NewStream(StreamPriority::kLow));
    follower.streams.push_back(std::move(stream));
    return follower.streams.back().ref();
  }
  return follower.streams[follower.next++ % kStreams].ref();
}

absl::Status StreamOrdering::BeforeRead(StreamRef stream, AccessTracker& memory) {
  return memory.last_write == nullptr ? absl::OkStatus() : memory.last_write->EnqueueWait(stream);
}

absl::Status StreamOrdering::BeforeWrite(StreamRef stream, AccessTracker& memory) {
  OCTAVO_RETURN_IF_ERROR(BeforeRead(stream, memory));
  for (const auto& read : memory.reads_since) OCTAVO_RETURN_IF_ERROR(read->EnqueueWait(stream));
  return absl::OkStatus();
}

absl::StatusOr<SharedEvent> StreamOrdering::Mark(int device, StreamRef stream) {
  OCTAVO_ASSIGN_OR_RETURN(Event event, devices_[static_cast<size_t>(device)]->NewEvent());
  OCTAVO_RETURN_IF_ERROR(event.Record(stream));
  return std::make_shared<Event>(std::move(event));
}

absl::Status StreamOrdering::End(int device, StreamRef stream,
                                 const std::vector<AccessTracker*>& read,
                                 const std::vector<AccessTracker*>& written,
                                 std::vector<std::shared_ptr<const void>> keep,
                                 std::function<void(const absl::Status&)> done) {
  auto mark = Mark(device, stream);
  Work work{.events = {}, .stream = {}, .keep = std::move(keep), .done = std::move(done)};
  if (mark.ok()) {
    work.events = {*mark};
    for (AccessTracker* memory : read) {
      // Finished reads need no wait.
      std::erase_if(memory->reads_since, [](const SharedEvent& e) {
        const auto passed = e->Query();
        return passed.ok() && *passed;
      });
      memory->reads_since.push_back(*mark);
    }
    for (AccessTracker* memory : written) {
      memory->last_write = *mark;
      memory->reads_since.clear();
    }
  } else {
    work.stream = stream;
  }
  Add(device, std::move(work));
  return mark.status();
}

void StreamOrdering::WhenPassed(int device, std::vector<SharedEvent> events,
                                std::function<void(const absl::Status&)> done) {
  Add(device, {.events = std::move(events), .stream = {}, .keep = {}, .done = std::move(done)});
}

/// What a caller of WhenAllPassed still waits for.
struct StreamOrdering::Waiting {
  std::map<int, std::vector<SharedEvent>> events;
  std::function<void(const absl::Status&)> done;
  absl::Status first;
};

void StreamOrdering::WhenAllPassed(std::map<int, std::vector<SharedEvent>> events,
                                   std::function<void(const absl::Status&)> done) {
  WaitForNext(std::make_shared<Waiting>(
      Waiting{.events = std::move(events), .done = std::move(done), .first = {}}));
}

// Each device's events are waited for in its own follower.
void StreamOrdering::WaitForNext(const std::shared_ptr<Waiting>& waiting) {
  if (waiting->events.empty()) return waiting->done(waiting->first);
  auto next = waiting->events.extract(waiting->events.begin());
  WhenPassed(next.key(), std::move(next.mapped()), [this, waiting](const absl::Status& status) {
    if (waiting->first.ok()) waiting->first = status;
    WaitForNext(waiting);
  });
}

void StreamOrdering::WaitForAll() {
  for (int d = 0; d < devices(); ++d) {
    Mutex mutex;
    CondVar cv;
    bool passed = false;
    WhenPassed(d, {}, [&](const absl::Status&) {
      MutexLock lock(mutex);
      passed = true;
      cv.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!passed) cv.Wait(lock);
  }
}

}  // namespace octavo::buffer
