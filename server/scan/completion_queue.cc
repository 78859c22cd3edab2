#include "server/scan/completion_queue.h"

#include <chrono>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::scan {
namespace {

// What a device needs for the rest of a volume, its projection and its digest. A volume that needs
// longer is waited for asleep.
constexpr std::chrono::microseconds kLooks(300), kBetweenLooks(2);
constexpr int kLeftOutAfterVain = 16;  // waits

}  // namespace

absl::Status CompletionQueue::Allocate(Device& device, int64_t events, size_t lanes,
                                       bool non_finite) {
  lanes_ = lanes;
  seal_words_ = static_cast<size_t>(memory::kSealWords) * lanes + 1;
  OCTAVO_ASSIGN_OR_RETURN(digests_,
                          device.AllocatePinned(events * static_cast<int64_t>(seal_words_ * 8)));
  if (non_finite) {
    OCTAVO_ASSIGN_OR_RETURN(
        non_finite_,
        device.AllocatePinned(events * static_cast<int64_t>(lanes * sizeof(uint64_t))));
  }
  OCTAVO_RETURN_IF_ERROR(stages_.Allocate(device, events));
  MutexLock lock(mutex_);
  for (int64_t i = 0; i < events; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Event event, device.NewEvent());
    events_.push_back(std::move(event));
    free_events_.push_back(static_cast<int>(i));
  }
  circle_.resize(static_cast<size_t>(events));
  if (device.info().backend == "host") return absl::OkStatus();  // its threads need the cores
  for (int64_t i = 0; i <= events; ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Event event, device.NewEvent());
    last_blocks_.push_back(std::move(event));
  }
  return absl::OkStatus();
}

int CompletionQueue::TakeEvent() {
  MutexLock lock(mutex_);
  while (free_events_.empty()) cv_.Wait(lock);
  const int event = free_events_.back();
  free_events_.pop_back();
  return event;
}

uint64_t* CompletionQueue::SealWords(int event) const {
  return digests_.as<uint64_t>() + seal_words_ * static_cast<size_t>(event);
}

uint64_t* CompletionQueue::NonFiniteWords(int event) const {
  return non_finite_.data() == nullptr
             ? nullptr
             : non_finite_.as<uint64_t>() + lanes_ * static_cast<size_t>(event);
}

absl::StatusOr<int> CompletionQueue::MarkLastBlock(StreamRef stream) {
  if (last_blocks_.empty()) return -1;
  const size_t mark = next_last_block_++ % last_blocks_.size();
  OCTAVO_RETURN_IF_ERROR(last_blocks_[mark].Record(stream));
  return static_cast<int>(mark);
}

absl::Status CompletionQueue::Push(Completion item, StreamRef stream) {
  OCTAVO_RETURN_IF_ERROR(events_[static_cast<size_t>(item.event)].Record(stream));
  MutexLock lock(mutex_);
  volumes_ += item.volume != nullptr;
  circle_[(first_ + count_++) % circle_.size()] = std::move(item);
  cv_.NotifyAll();
  return absl::OkStatus();
}

void CompletionQueue::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  cv_.NotifyAll();
}

bool CompletionQueue::Next(Completion* item) {
  MutexLock lock(mutex_);
  while (count_ == 0 && !closed_) cv_.Wait(lock);
  if (count_ == 0) return false;
  *item = std::move(circle_[first_]);
  first_ = (first_ + 1) % circle_.size();
  --count_;
  return true;
}

absl::Status CompletionQueue::Wait(const Completion& item) {
  Event& event = events_[static_cast<size_t>(item.event)];
  if (item.last_block < 0 || Volumes() > 1) return event.Synchronize();
  if (looks_left_out_ > 0) {
    --looks_left_out_;
    return event.Synchronize();
  }
  OCTAVO_RETURN_IF_ERROR(last_blocks_[static_cast<size_t>(item.last_block)].Synchronize());
  const auto until = std::chrono::steady_clock::now() + kLooks;
  for (auto now = std::chrono::steady_clock::now(); now < until;
       now = std::chrono::steady_clock::now()) {
    const auto passed = event.Query();
    if (!passed.ok() || *passed) return passed.status();
    while (std::chrono::steady_clock::now() < now + kBetweenLooks) {
    }
  }
  looks_left_out_ = kLeftOutAfterVain;
  return event.Synchronize();
}

void CompletionQueue::Recycle(const Completion& item) {
  MutexLock lock(mutex_);
  free_events_.push_back(item.event);
  volumes_ -= item.volume != nullptr;
  cv_.NotifyAll();
}

int CompletionQueue::Volumes() {
  MutexLock lock(mutex_);
  return volumes_;
}

void CompletionQueue::Free() {
  events_ = std::vector<Event>();
  last_blocks_ = std::vector<Event>();
  stages_.Free();
  digests_ = PinnedBuffer();
  non_finite_ = PinnedBuffer();
  MutexLock lock(mutex_);
  circle_ = std::vector<Completion>();
  free_events_ = std::vector<int>();
}

}  // namespace octavo::scan
