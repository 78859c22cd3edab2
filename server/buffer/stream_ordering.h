#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"

namespace octavo::buffer {

using SharedEvent = std::shared_ptr<Event>;

/// Events that accesses to a piece of device memory wait for: a reader waits for the last write; a
/// writer waits for that and for the reads since.
struct AccessTracker {
  SharedEvent last_write;
  std::vector<SharedEvent> reads_since;
};

/// Streams of all devices, the order of work on shared memory, and the end of that work. Each
/// device has a few streams, used in turn, so that work on different memory runs in parallel. The
/// caller holds one lock of its own around Begin, Access and End of one piece of work. A thread per
/// device follows the work and releases the memory that it kept.
class StreamOrdering {
 public:
  explicit StreamOrdering(std::vector<Device*> devices);
  ~StreamOrdering();  // waits for all work

  /// The next stream of a device; made when first needed. Does not wait.
  absl::StatusOr<StreamRef> Begin(int device);
  /// Later work on `stream` runs after the last write of `memory` and, if it writes, also after the
  /// reads since.
  static absl::Status BeforeRead(StreamRef stream, AccessTracker& memory);
  static absl::Status BeforeWrite(StreamRef stream, AccessTracker& memory);
  /// Marks the end of the work on `stream`; later accesses to `read` and `written` are ordered
  /// after it. When the work has finished, a thread of this object releases `keep` and then calls
  /// `done` (may be null). If the mark cannot be set, `keep` is released after a wait for the
  /// stream.
  absl::Status End(int device, StreamRef stream, const std::vector<AccessTracker*>& read,
                   const std::vector<AccessTracker*>& written,
                   std::vector<std::shared_ptr<const void>> keep,
                   std::function<void(const absl::Status&)> done);
  /// A mark on a stream.
  absl::StatusOr<SharedEvent> Mark(int device, StreamRef stream);
  /// `done` is called when all `events` have passed, with their first error.
  void WhenPassed(int device, std::vector<SharedEvent> events,
                  std::function<void(const absl::Status&)> done);
  /// The same for events of several devices: one device after the other.
  void WhenAllPassed(std::map<int, std::vector<SharedEvent>> events,
                     std::function<void(const absl::Status&)> done);
  /// Returns once all work that was enqueued so far has finished.
  void WaitForAll();
  Device& device(int index) const { return *devices_[static_cast<size_t>(index)]; }
  int devices() const { return static_cast<int>(devices_.size()); }

 private:
  static constexpr size_t kStreams = 4;
  struct Work {
    std::vector<SharedEvent> events;
    StreamRef stream;  // waited for if set
    std::vector<std::shared_ptr<const void>> keep;
    std::function<void(const absl::Status&)> done;
  };
  struct Follower {
    Mutex mutex;
    CondVar cv;
    std::deque<Work> work ABSL_GUARDED_BY(mutex);
    bool end ABSL_GUARDED_BY(mutex) = false;
    std::vector<Stream> streams ABSL_GUARDED_BY(mutex);
    size_t next ABSL_GUARDED_BY(mutex) = 0;
    std::jthread thread;
  };
  struct Waiting;
  void Add(int device, Work work);
  void WaitForNext(const std::shared_ptr<Waiting>& waiting);
  static void Follow(Follower& follower);

  const std::vector<Device*> devices_;
  std::vector<std::unique_ptr<Follower>> followers_;
};

}  // namespace octavo::buffer
