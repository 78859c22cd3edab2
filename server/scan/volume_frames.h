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

/// Frames of whole volumes. Subscribers who read the volumes hear of them at once. For the others
/// it copies them to the host: on a thread of its own and a stream of low priority, beside the
/// scan's other threads.
class VolumeFrames {
 public:
  static constexpr ptrdiff_t kMostWaiting = 5;  // includes the volume being copied

  VolumeFrames(std::string scan, volume::VolumeStore* store, publish::Publisher* publisher,
               std::shared_ptr<memory::FramePool> frames);
  absl::Status OpenStream(Device& device);
  StreamRef stream() const { return stream_.ref(); }

  /// Call when a volume is held. Announces it if a subscriber wants volumes, and queues one copy if
  /// one wants their data; or a lost frame if copying has fallen behind. Retire thread.
  void Offer(const ActiveVolume& volume);
  /// The thread's body: copies until Close was called and the queue is empty.
  void Run();
  void Close();
  /// Whether a copy keeps a slot that will become free afterwards. Any thread.
  bool KeepsSlots();
  void Free() { stream_ = Stream(); }

 private:
  struct Copy {
    model::Frame frame;         // without its data
    volume::VolumeHold pinned;  // none: the data are lost, which their subscribers hear in turn
    bool keeps_slot = false;
  };
  /// Whether as many copies wait as may.
  bool IsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
