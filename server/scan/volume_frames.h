#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/memory/frame_pool.h"
#include "server/publish/publisher.h"
#include "server/scan/completion.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// Copies whole volumes to the host for subscribers: on a thread of its own and a stream of low
/// priority, beside the scan's other threads.
class VolumeFrames {
 public:
  static constexpr size_t kMostWaiting = 5;  // includes the volume being copied

  VolumeFrames(std::string scan, volume::VolumeStore* store, publish::Publisher* publisher,
               std::shared_ptr<memory::FramePool> frames);
  absl::Status OpenStream(Device& device);
  StreamRef stream() const { return stream_.ref(); }

  /// Call when a volume is held. Queues one copy for each topic that wants it, or counts a lost
  /// frame if copying has fallen behind. Retire thread.
  void Offer(const ActiveVolume& volume);
  /// The thread's body: copies until Close was called and the queue is empty.
  void Run();
  void Close();
  /// Whether a copy keeps a slot that will become free afterwards. Any thread.
  bool KeepsSlots();
  void Free() { stream_ = Stream(); }

 private:
  struct Copy {
    volume::VolumeHold pinned;
    double display_lo = 0, display_hi = 255;
  };
  const std::string scan_;
  volume::VolumeStore* const store_;
  publish::Publisher* const publisher_;
  const std::shared_ptr<memory::FramePool> frames_;
  Device* device_ = nullptr;
  Stream stream_;
  Mutex mutex_;  // acquired before the publisher's
  CondVar cv_;
  std::deque<Copy> copies_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::scan
