#include "server/scan/volume_frames.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu/base/status.h"
#include "server/volume/copy_volume.h"

namespace octavo::scan {
namespace {

// Without the data.
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
  frame.payload.size = volume.bytes;
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
    Copy copy{.frame = HeaderOf(volume.status, volume.display_lo, volume.display_hi)};
    copy.frame.sequence = publisher_->Announce(Key(), copy.frame);
    if (!wanted.data) continue;
    auto pinned = store_->Hold(volume.status.name, volume::HoldKind::kRead);
    MutexLock lock(mutex_);
    copy.keeps_slot = pinned.ok() && !IsFull();  // copies must not accumulate in memory
    if (copy.keeps_slot) copy.pinned = *std::move(pinned);
    copies_.push_back(std::move(copy));
    cv_.NotifyAll();
  }
}

void VolumeFrames::Run() {
  for (;;) {
    Copy job;
    {
      MutexLock lock(mutex_);
      while (copies_.empty() && !closed_) cv_.Wait(lock);
      if (copies_.empty()) return;
      // Its place stays taken until its slot is free: KeepsSlots.
      job.frame = std::move(copies_.front().frame);
      job.pinned = std::move(copies_.front().pinned);
      job.keeps_slot = copies_.front().keeps_slot;
    }
    absl::StatusOr<model::Bytes> payload = absl::ResourceExhaustedError("too many copies wait");
    if (job.keeps_slot)
      payload = volume::CopyVolumeToHost(*device_, stream_.ref(), *frames_, job.pinned);
    job.pinned.Release();  // frees the slot before subscribers are served
    {
      MutexLock lock(mutex_);
      copies_.pop_front();
    }
    if (!payload.ok()) {
      publisher_->Undelivered(scan_, Key(), job.frame.sequence);
      continue;
    }
    job.frame.payload = *std::move(payload);
    publisher_->Deliver(Key(), std::move(job.frame));
  }
}

bool VolumeFrames::IsFull() const {
  return std::count_if(copies_.begin(), copies_.end(),
                       [](const Copy& copy) { return copy.keeps_slot; }) >= kMostWaiting;
}

void VolumeFrames::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  cv_.NotifyAll();
}

bool VolumeFrames::KeepsSlots() {
  MutexLock lock(mutex_);
  return std::any_of(copies_.begin(), copies_.end(),
                     [](const Copy& copy) { return copy.keeps_slot; });
}

}  // namespace octavo::scan
