#include "client/cpp/lib/frame_queue.h"

#include <algorithm>
#include <utility>

namespace octavo::client {
namespace {

constexpr size_t kDefaultLength = 2;     // as the server's for volumes
constexpr size_t kMostAnnounced = 1024;  // LOSSLESS: then the server keeps the rest

}  // namespace

FrameQueue::FrameQueue(const v1::SubscribeRequest& request)
    : delivery_(request.delivery() == v1::DELIVERY_UNSPECIFIED ? v1::DELIVERY_LOSSLESS
                                                               : request.delivery()),
      most_(request.queue_length() == 0 ? kDefaultLength : request.queue_length()) {}

bool FrameQueue::IsToBeRead(const Frame& frame) {
  return frame.product == Product::kVolume && frame.array.data.empty() &&
         !frame.array.shape.empty();
}

void FrameQueue::Push(Frame frame) {
  if (IsToBeRead(frame) && !lossless()) {
    const auto replaced = [&](const Frame& other) {
      return IsToBeRead(other) &&
             (delivery_ != v1::DELIVERY_LATEST || other.parent == frame.parent);
    };
    const auto waiting = std::count_if(frames_.begin(), frames_.end(), replaced);
    const bool full =
        delivery_ == v1::DELIVERY_LATEST ? waiting > 0 : static_cast<size_t>(waiting) >= most_;
    if (full) {
      const auto oldest = std::find_if(frames_.begin(), frames_.end(), replaced);
      Lost(*oldest);
      frames_.erase(oldest);
    }
  }
  frames_.push_back(std::move(frame));
}

bool FrameQueue::HasRoom() const {
  return frames_.size() < kMostAnnounced && std::all_of(frames_.begin(), frames_.end(), IsToBeRead);
}

Frame FrameQueue::Pop() {
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  if (frame.product == Product::kVolume) {
    if (const auto lost = lost_.extract(frame.parent); !lost.empty())
      frame.dropped_before += lost.mapped();
  }
  return frame;
}

void FrameQueue::Lost(const Frame& frame) { lost_[frame.parent] += frame.dropped_before + 1; }

}  // namespace octavo::client
