#include "server/rpc/frame_pump.h"

#include <algorithm>
#include <utility>

#include "gpu/base/clock.h"
#include "server/picture/image.h"

namespace octavo::rpc {
namespace {

/// Whether a picture of the frame takes long: seconds, if it is of an exact kind.
bool IsLarge(const model::Frame& frame) {
  constexpr int64_t kLargeValues = int64_t{1} << 21;
  return frame.shape[0] > kLargeValues / std::max<int64_t>(frame.shape[1], 1);
}

}  // namespace

FramePump::FramePump(SubscribeOptions options, base::WorkerPool* workers, SlowWork* slow,
                     std::shared_ptr<picture::PictureCache> pictures, LastPictures last_pictures)
    : options_(std::move(options)),
      workers_(workers),
      makers_(slow->pictures),
      makers_of_large_(slow->large_pictures),
      pictures_(std::move(pictures)),
      last_pictures_(std::move(last_pictures)) {}

FramePump::Notify FramePump::NotifiesThis() {
  return [weak = weak_from_this()] {
    if (const auto pump = weak.lock()) pump->FrameCame();
  };
}

void FramePump::Start(std::shared_ptr<model::Subscription> subscription,
                      std::shared_ptr<FrameSink> sink) {
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      subscription_ = std::move(subscription);
      sink_ = std::move(sink);
    }
  }
  if (subscription != nullptr) return subscription->Close();
  Wake();
}

bool FramePump::Begins() {
  MutexLock lock(mutex_);
  again_ = true;
  if (running_ || closed_ || subscription_ == nullptr) return false;
  running_ = true;
  return true;
}

void FramePump::Wake() {
  if (Begins()) Post(WorkersOfNext());
}

void FramePump::FrameCame() {
  if (!Begins()) return;
  std::shared_ptr<model::Subscription> subscription;
  std::shared_ptr<FrameSink> sink;
  {
    MutexLock lock(mutex_);
    subscription = subscription_;
    sink = sink_;
  }
  if (sink == nullptr) return;
  sink->Guard([&] { SendOne(*subscription, *sink); });
}

void FramePump::Close() {
  std::shared_ptr<model::Subscription> subscription;
  std::shared_ptr<FrameSink> sink;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    subscription = std::move(subscription_);
    sink = std::move(sink_);
  }
  if (subscription != nullptr) subscription->Close();
}

// A step that takes a frame and makes a picture of it waits with others of its kind: the frame is
// taken when it is its turn, so that it is a new one.
base::WorkerPool* FramePump::WorkersOfNext() {
  return options_.image.has_value() ? &makers_ : workers_;
}

void FramePump::Post(base::WorkerPool* to) {
  std::shared_ptr<FrameSink> sink;
  {
    MutexLock lock(mutex_);
    sink = sink_;
  }
  if (sink == nullptr) return;
  const auto step = [self = shared_from_this(), sink] {
    sink->Guard([&] { self->SendAll(*sink); });
  };
  sink->Guard([&] { to->Post(step); });
}

void FramePump::SendAll(FrameSink& sink) {
  for (;;) {
    std::shared_ptr<model::Subscription> subscription;
    {
      MutexLock lock(mutex_);
      again_ = false;
      subscription = subscription_;
    }
    if (subscription == nullptr) return;
    const Step step = SendNext(*subscription, sink);
    if (step == Step::kElsewhere) return;
    if (step == Step::kEnded) {
      frame_ = {};
      return Close();
    }
    if (step == Step::kNothing && Rests()) return;
  }
}

// Closes nothing: Close waits for the notification that this runs in.
void FramePump::SendOne(model::Subscription& subscription, FrameSink& sink) {
  if (options_.image.has_value() || !sink.SendsAtOnce(0)) return Post(WorkersOfNext());
  for (bool sent = false;;) {
    {
      MutexLock lock(mutex_);
      again_ = false;
    }
    const bool ready = sink.Ready();
    if (ready && frame_.frame == nullptr) (void)subscription.Take(&frame_);
    if (!ready || frame_.frame == nullptr) {
      absl::Status end;
      if (frame_.frame == nullptr && subscription.Ended(&end)) return Post(workers_);
      if (Rests()) return;
      continue;
    }
    const model::Frame& frame = *frame_.frame;
    // Events are published under locks of their scan.
    if (sent || frame.product == model::Product::kEvent || !sink.SendsAtOnce(frame.payload.size))
      return Post(workers_);
    if (SendNext(subscription, sink) == Step::kEnded) {
      frame_ = {};
      return workers_->Post([self = shared_from_this()] { self->Close(); });
    }
    sent = true;
  }
}

bool FramePump::Rests() {
  MutexLock lock(mutex_);
  if (again_) return false;
  running_ = false;
  return true;
}

FramePump::Step FramePump::SendNext(model::Subscription& subscription, FrameSink& sink) {
  const bool ready = sink.Ready(), taken_before = frame_.frame != nullptr;
  if (!taken_before && (!ready || !subscription.Take(&frame_))) {
    absl::Status end;
    if (!sink.TakesEnd() || !subscription.Ended(&end)) return Step::kNothing;
    if (end.ok() && TurnsToLastPictures()) return Step::kSent;  // look at that one
    sink.End(at_last_pictures_ ? absl::OkStatus() : end);
    return Step::kEnded;
  }
  if (!ready) return Step::kNothing;
  const model::Frame& frame = *frame_.frame;
  if (at_last_pictures_ && WasShown(frame)) {  // the newest one has gone meanwhile
    frame_ = {};
    return Step::kSent;
  }
  OutgoingFrame out{.about = {}, .data = frame.payload};
  EncodeFrameHeader(frame, frame_.dropped_before, &out.about);
  out.about.set_encoding(v1::ENCODING_RAW);
  if (options_.image.has_value() && model::IsImage(frame.product)) {
    if (!taken_before && IsLarge(frame)) {
      Post(&makers_of_large_);
      return Step::kElsewhere;
    }
    const auto picture = pictures_->Get(frame_.frame, *options_.image);
    if (!picture.ok()) {
      sink.End(picture.status());
      return Step::kEnded;
    }
    EncodePictureHeader(**picture, &out.about);
    out.about.set_encoding(options_.encoding);
    out.data = (*picture)->data;
  }
  if (out.about.has_stages())
    out.about.mutable_stages()->set_sent_ns(SystemClock().Now().monotonic_ns);
  if (frame.complete) shown_[frame.product] = frame.volume_index;
  frame_ = {};
  if (const absl::Status sent = sink.Send(std::move(out)); !sent.ok()) {
    sink.End(sent);
    return Step::kEnded;
  }
  return Step::kSent;
}

bool FramePump::WasShown(const model::Frame& frame) const {
  const auto it = shown_.find(frame.product);
  return it != shown_.end() && frame.volume_index <= it->second;
}

bool FramePump::TurnsToLastPictures() {
  const LastPictures ask = std::exchange(last_pictures_, nullptr);
  if (ask == nullptr) return false;
  auto last = ask(shown_, NotifiesThis());
  if (!last.ok()) return false;  // nothing is lacking, or no volume is held
  std::shared_ptr<model::Subscription> before = *std::move(last);
  {
    MutexLock lock(mutex_);
    if (!closed_) std::swap(subscription_, before);
  }
  if (before != nullptr) before->Close();
  return at_last_pictures_ = true;
}

}  // namespace octavo::rpc
