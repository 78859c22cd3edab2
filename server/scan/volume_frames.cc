#include "server/scan/volume_frames.h"

#include <utility>

#include "gpu/base/status.h"
#include "server/volume/copy_volume.h"

namespace octavo::scan {
namespace {

// Without payload.
model::Frame HeaderOf(const model::VolumeStatus& volume, double display_lo, double display_hi) {
  model::Frame frame;
  frame.parent = volume.scan;
  frame.volume = volume.name;
  frame.volume_index = volume.index;
  frame.product = model::Product::kVolume;
  frame.acquired = volume.acquired_end;
  frame.shape.assign(volume.shape, volume.shape + 3);
  frame.axes = {"y", "x", "z"};
  frame.spacing_um.assign(volume.spacing_um, volume.spacing_um + 3);
  frame.dtype = volume.dtype;
  frame.display_lo = display_lo;
  frame.display_hi = display_hi;
  return frame;
}

const publish::TopicKey& Key() {
  static const publish::TopicKey key{.product = model::Product::kVolume};
  return key;
}

}  // namespace

VolumeFrames::VolumeFrames(std::string scan, volume::VolumeStore* store,
                           publish::Publisher* publisher, std::shared_ptr<memory::FramePool> frames)
    : scan_(std::move(scan)), store_(store), publisher_(publisher), frames_(std::move(frames)) {}

absl::Status VolumeFrames::OpenStream(Device& device) {
  device_ = &device;
  OCTAVO_ASSIGN_OR_RETURN(stream_, device.NewStream(StreamPriority::kLow));
  return absl::OkStatus();
}

void VolumeFrames::Offer(const ActiveVolume& volume) {
  for (const auto& wanted : publisher_->WantedOf(scan_)) {
    if (wanted.key != Key()) continue;
    auto pinned = store_->Hold(volume.status.name, volume::HoldKind::kRead);
    MutexLock lock(mutex_);
    if (!pinned.ok() || copies_.size() >= kMostWaiting) {  // copies must not accumulate in memory
      publisher_->Lost(scan_, Key());
    } else {
      copies_.push_back({.pinned = *std::move(pinned),
                         .display_lo = volume.display_lo,
                         .display_hi = volume.display_hi});
      cv_.NotifyAll();
    }
  }
}

void VolumeFrames::Run() {
  for (;;) {
    Copy job;
    {
      MutexLock lock(mutex_);
      while (copies_.empty() && !closed_) cv_.Wait(lock);
      if (copies_.empty()) return;
      job = std::move(copies_.front());  // its place stays taken until its slot is free: KeepsSlots
    }
    auto payload = volume::CopyVolumeToHost(*device_, stream_.ref(), *frames_, job.pinned);
    model::Frame frame = HeaderOf(job.pinned.status, job.display_lo, job.display_hi);
    job.pinned.slot = nullptr;  // frees the slot before subscribers are served
    {
      MutexLock lock(mutex_);
      copies_.pop_front();
    }
    if (!payload.ok()) {
      publisher_->Lost(scan_, Key());
      continue;
    }
    frame.payload = *std::move(payload);
    publisher_->Publish(Key(), std::move(frame));
  }
}

void VolumeFrames::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  cv_.NotifyAll();
}

bool VolumeFrames::KeepsSlots() {
  MutexLock lock(mutex_);
  return !copies_.empty();
}

}  // namespace octavo::scan
