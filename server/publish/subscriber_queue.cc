#include "server/publish/subscriber_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/publish/frames.h"
#include "server/publish/plane_frame.h"

namespace octavo::publish {
namespace {

// A subscriber waits so long for memory that others have, often slower readers of its own kind.
constexpr int64_t kPatienceNs = 30'000'000'000;

}  // namespace

bool SubscriberQueue::Push(const TopicKey& key, const model::FramePtr& frame) {
  MutexLock lock(mutex_);
  if (ended_ || IsOldVolume(frame->product, frame->sequence)) return false;
  TopicState& topic = TopicOf(frame->parent, key, frame->sequence);
  if (!spec_.previews && !frame->complete)
    return false;  // at the subscriber's request: counts for the subscriber, not for the metrics
  if (!replay_.empty()) return PushBehindReplay(frame);
  switch (spec_.DeliveryOf(frame->product)) {
    case model::Delivery::kLatest: {
      auto same = std::find_if(queue_.begin(), queue_.end(), [&](const model::FramePtr& f) {
        return f->parent == frame->parent && KeyOf(*f) == KeyOf(*frame);
      });
      if (same == queue_.end()) {
        queue_.push_back(frame);
      } else {
        *same = frame;
        CountDrop(frame->product);
      }
      return true;
    }
    case model::Delivery::kDropOldest:
      if (TooEarly(topic)) {
        CountDrop(frame->product);
        return false;
      }
      if (IsFull(queue_, frame->product)) {
        CountDrop(frame->product);
        queue_.erase(std::find_if(queue_.begin(), queue_.end(), [&](const model::FramePtr& f) {
          return f->product == frame->product;
        }));
      }
      break;
    case model::Delivery::kLossless:
      if (IsFull(queue_, frame->product)) {
        Cut(Reason::kSlowSubscriber, frame->product, frame->sequence,
            FullQueue(frame->product, "is full"));
        return true;
      }
      break;
  }
  topic.last_accepted_ns = clock_->Now().monotonic_ns;
  queue_.push_back(frame);
  return true;
}

std::string SubscriberQueue::FullQueue(model::Product product, const char* what) const {
  return absl::StrCat("the subscriber's queue of ", spec_.QueueLengthOf(product), " frames ", what);
}

bool SubscriberQueue::IsFull(const std::deque<model::FramePtr>& frames, model::Product product,
                             size_t room) const {
  const auto waiting = std::count_if(frames.begin(), frames.end(), [&](const model::FramePtr& f) {
    return f->product == product;
  });
  return static_cast<size_t>(waiting) >= room + static_cast<size_t>(spec_.QueueLengthOf(product));
}

bool SubscriberQueue::PushBehindReplay(const model::FramePtr& frame) {
  if (IsFull(replay_, frame->product, replayed_[frame->product])) {
    if (spec_.DeliveryOf(frame->product) == model::Delivery::kLossless) {
      Cut(Reason::kSlowSubscriber, frame->product, frame->sequence,
          FullQueue(frame->product, "behind the replayed ones is full"));
      return true;
    }
    CountDrop(frame->product);
    const auto oldest = std::find_if(
        replay_.begin() + (NeedsLoad(*replay_.front()) ? 1 : 0),  // the first one may be loading
        replay_.end(), [&](const model::FramePtr& f) { return f->product == frame->product; });
    if (oldest == replay_.end()) return false;  // only the one that loads is of the product
    replay_.erase(oldest);
  }
  replay_.push_back(NeedsLoad(*frame) || frame->product != model::Product::kVolume
                        ? frame
                        : WithoutPayload(*frame));
  return false;
}

bool SubscriberQueue::Lose(const std::string& scan, const TopicKey& key, uint64_t sequence,
                           Loss loss) {
  MutexLock lock(mutex_);
  if (ended_ || IsOldVolume(key.product, sequence)) return false;
  (void)TopicOf(scan, key, sequence);
  CountDrop(key.product);
  if (spec_.DeliveryOf(key.product) != model::Delivery::kLossless) return false;
  Cut(Reason::kFrameLost, key.product, sequence,
      loss == Loss::kYielded      ? "the server could not make the frame without losing records"
      : loss == Loss::kSuperseded ? "a newer record came before the frame was made"
                                  : "the server had no memory for the frame");
  return true;
}

void SubscriberQueue::Replay(std::vector<model::FramePtr> frames) {
  {
    MutexLock lock(mutex_);
    replay_.assign(frames.begin(), frames.end());
    replayed_.clear();
    for (const model::FramePtr& frame : frames) {
      ++replayed_[frame->product];
      if (frame->product == model::Product::kVolume)
        first_volume_ = std::max(first_volume_, frame->sequence + 1);
    }
  }
  StartLoad();
}

void SubscriberQueue::ForgetScans(const std::function<bool(const std::string&)>& known) {
  MutexLock lock(mutex_);
  std::erase_if(topics_, [&](const auto& topic) {
    const std::string& scan = topic.first.first;
    const auto of_it = [&](const model::FramePtr& frame) { return frame->parent == scan; };
    return !known(scan) && std::none_of(queue_.begin(), queue_.end(), of_it) &&
           std::none_of(replay_.begin(), replay_.end(), of_it);
  });
}

void SubscriberQueue::End() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
}

bool SubscriberQueue::Take(model::Delivered* out) {
  bool load = false;
  {
    MutexLock lock(mutex_);
    model::FramePtr frame;
    // made from a held volume: its number follows those of its topic, regardless of its volume
    bool of_held = false;
    if (!replay_.empty()) {
      if (!NeedsLoad(*replay_.front())) {
        frame = replay_.front();
      } else if (loaded_ != nullptr) {
        frame = std::exchange(loaded_, nullptr);
        of_held = IsCut(frame->product);
      }
      if (frame != nullptr) {
        replay_.pop_front();
        load = true;
        if (spec_.DeliveryOf(frame->product) == model::Delivery::kLatest && !spec_.resume &&
            IsCut(frame->product))
          DropOlder(*frame);
      }
    } else {
      for (auto it = queue_.begin(); it != queue_.end(); ++it) {
        if (spec_.DeliveryOf((*it)->product) == model::Delivery::kLatest && !ended_ &&
            TooEarly(TopicOf((*it)->parent, KeyOf(**it), (*it)->sequence)))
          continue;
        frame = std::move(*it);
        queue_.erase(it);
        break;
      }
    }
    if (frame == nullptr) return false;
    TopicState& topic = TopicOf(frame->parent, KeyOf(*frame), frame->sequence);
    out->dropped_before = of_held || frame->sequence < topic.next_sequence
                              ? 0
                              : frame->sequence - topic.next_sequence;
    topic.next_sequence = std::max(topic.next_sequence, frame->sequence + 1);
    if (spec_.DeliveryOf(frame->product) == model::Delivery::kLatest)
      topic.last_accepted_ns = clock_->Now().monotonic_ns;
    out->frame = std::move(frame);
  }
  counters_->Sent(out->frame->product);
  if (load) StartLoad();
  return true;
}

// LATEST: drop the alternatives that were to be tried if this one had been gone.
void SubscriberQueue::DropOlder(const model::Frame& newest) {
  std::erase_if(replay_, [&](const model::FramePtr& frame) {
    return KeyOf(*frame) == KeyOf(newest) && frame->volume_index <= newest.volume_index;
  });
}

bool SubscriberQueue::Ended(absl::Status* status) {
  MutexLock lock(mutex_);
  if (!ended_ || !queue_.empty() || !replay_.empty()) return false;
  *status = status_;
  return true;
}

void SubscriberQueue::Close() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    closed_ = true;
    queue_.clear();
    replay_.clear();
    loaded_ = nullptr;
  }
  MutexLock lock(notify_mutex_);
  notify_ = nullptr;
}

bool SubscriberQueue::closed() {
  MutexLock lock(mutex_);
  return closed_;
}

bool SubscriberQueue::HeldBack() {
  MutexLock lock(mutex_);
  return waits_for_memory_ || (spec_.max_rate_hz > 0 && !queue_.empty());
}

void SubscriberQueue::Tick() {
  {
    MutexLock lock(mutex_);
    if (!std::exchange(waits_for_memory_, false)) return;
  }
  StartLoad();
}

void SubscriberQueue::Notify() {
  MutexLock lock(notify_mutex_);
  if (notify_) notify_();
}

SubscriberQueue::TopicState& SubscriberQueue::TopicOf(const std::string& scan, const TopicKey& key,
                                                      uint64_t first_sequence) {
  if (spec_.resume) first_sequence = spec_.from_sequence;
  return topics_.try_emplace({scan, key}, TopicState{.next_sequence = first_sequence})
      .first->second;
}

TopicKey SubscriberQueue::KeyOf(const model::Frame& frame) const {
  const bool line = model::IsLine(frame.product);
  return {.product = frame.product,
          .axis = frame.axis,
          .plane_index = line || frame.product == model::Product::kBscan ? spec_.plane_index : -1,
          .slab = frame.slab,
          .corrected = frame.product == model::Product::kSpectrum && spec_.corrected};
}

bool SubscriberQueue::TooEarly(const TopicState& topic) const {
  return spec_.max_rate_hz > 0 && topic.last_accepted_ns > 0 &&
         static_cast<double>(clock_->Now().monotonic_ns - topic.last_accepted_ns) <
             1e9 / spec_.max_rate_hz;
}

void SubscriberQueue::CountDrop(model::Product product) {
  counters_->Dropped(product, Name(spec_.DeliveryOf(product)));
}

void SubscriberQueue::Cut(Reason reason, model::Product product, uint64_t resume_from,
                          const std::string& why) {
  ended_ = true;
  status_ = WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(why, "; resume from sequence ", resume_from, " of ",
                                                Name(product), " while it is kept")),
      {.reason = reason,
       .field = "",
       .numbers = {{"resume_from", absl::StrCat(resume_from)}, {"retryable", "true"}}});
  counters_->Cut(reason == Reason::kFrameLost ? "frame_lost" : "slow_subscriber");
}

bool SubscriberQueue::HasOlder() const {
  return spec_.DeliveryOf(replay_.front()->product) == model::Delivery::kLatest && !spec_.resume &&
         std::any_of(std::next(replay_.begin()), replay_.end(),
                     [&](const auto& frame) { return !NeedsLoad(*frame); });
}

bool SubscriberQueue::IsWorthAnotherTry(const absl::Status& why) {
  if (!base::IsRetryable(why) || HasOlder()) return false;
  const int64_t now = clock_->Now().monotonic_ns;
  if (short_since_ns_ == 0) short_since_ns_ = now;
  return now - short_since_ns_ < kPatienceNs;
}

void SubscriberQueue::IsMissing(const absl::Status& why) {
  const model::FramePtr gone = replay_.front();
  if (!absl::IsNotFound(why) &&
      !absl::IsFailedPrecondition(
          why)) {  // the volume exists: memory is short, or a file cannot be read
    if (HasOlder()) {
      replay_.pop_front();  // an older one is at hand
      CountDrop(gone->product);
      return;
    }
    ended_ = true;
    status_ =
        WithInfo(absl::ResourceExhaustedError(absl::StrCat("the server could not make a ",
                                                           Name(gone->product), " of ",
                                                           gone->volume, ": ", why.message())),
                 {.reason = Reason::kNoFrame, .field = "", .numbers = {{"retryable", "true"}}});
    replay_.clear();
    queue_.clear();
    return;
  }
  if (spec_.resume && gone->product == model::Product::kVolume) {  // it was requested by its number
    ended_ = true;
    replay_.pop_front();
    // A subscription that resumes is of one product: what waits behind is of this topic.
    const uint64_t first = !replay_.empty()  ? replay_.front()->sequence
                           : !queue_.empty() ? queue_.front()->sequence
                                             : gone->sequence + 1,
                   next = (!queue_.empty()    ? queue_.back()->sequence
                           : !replay_.empty() ? replay_.back()->sequence
                                              : gone->sequence) +
                          1;
    status_ = WithInfo(
        absl::OutOfRangeError(absl::StrCat("volume frame ", gone->sequence, " (", gone->volume,
                                           ") is no longer kept")),
        {.reason = Reason::kSequenceGone,
         .field = "from_sequence",
         .numbers = {{"first_available", absl::StrCat(first)}, {"next", absl::StrCat(next)}}});
    replay_.clear();
    queue_.clear();
    return;
  }
  replay_.pop_front();
  CountDrop(gone->product);
  if (ended_ && topics_.empty() && replay_.empty() && queue_.empty()) {
    status_ = WithInfo(absl::FailedPreconditionError(
                           absl::StrCat(gone->volume, ", of which a ", Name(gone->product),
                                        " was to be made, is gone meanwhile")),
                       {.reason = Reason::kNothingKept, .field = "scan", .numbers = {}});
  }
}

void SubscriberQueue::StartLoad() {
  model::FramePtr header;
  {
    MutexLock lock(mutex_);
    if (loading_ || waits_for_memory_ || loaded_ != nullptr || replay_.empty() ||
        !NeedsLoad(*replay_.front()))
      return;
    loading_ = true;
    header = replay_.front();
  }
  held_frames_->Load(header, [self = shared_from_this()](absl::StatusOr<model::FramePtr> frame) {
    {
      MutexLock lock(self->mutex_);
      self->loading_ = false;
      if (self->closed_ || self->replay_.empty()) return;
      if (!frame.ok() && self->IsWorthAnotherTry(frame.status())) {
        self->waits_for_memory_ = true;
        return;
      }
      self->short_since_ns_ = 0;
      if (frame.ok()) {
        self->loaded_ = *std::move(frame);
      } else {
        self->IsMissing(frame.status());
      }
    }
    self->Notify();
    self->StartLoad();
  });
}

}  // namespace octavo::publish
