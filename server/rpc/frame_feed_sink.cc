#include "server/rpc/frame_feed_sink.h"

#include <string>

#include "server/base/exception_to_status.h"
#include "server/rpc/transport/reactor.h"

namespace octavo::rpc {

void FrameFeedSink::Subscribed(std::shared_ptr<model::Subscription> subscription) {
  MutexLock lock(mutex_);
  subscription_ = std::move(subscription);
}

void FrameFeedSink::Close() {
  std::shared_ptr<model::Subscription> subscription;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    subscription = std::move(subscription_);
  }
  if (subscription != nullptr) subscription->Close();
  pump_->Close();
}

void FrameFeedSink::Begin() {
  std::shared_ptr<model::Subscription> subscription;
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    subscription = std::move(subscription_);
  }
  pump_->Start(std::move(subscription), shared_from_this());
}

void FrameFeedSink::Guard(const std::function<void()>& step) {
  const absl::Status status = Guarded([&] {
    PassPoint(MethodOf<v1::OpenFramesRequest>(), ".message");
    return step(), absl::OkStatus();
  });
  if (!status.ok())
    base::GuardedTurn("a subscription that fails is not told its end", [&] { End(status); });
}

bool FrameFeedSink::Ready() {
  const auto feed = feed_.lock();
  return feed != nullptr && feed->HasRoom();
}

bool FrameFeedSink::SendsAtOnce(int64_t bytes) {
  const auto feed = feed_.lock();
  return feed != nullptr && feed->SendsAtOnce(bytes);
}

absl::Status FrameFeedSink::Send(OutgoingFrame frame) {
  const auto feed = feed_.lock();
  if (feed == nullptr) return absl::OkStatus();
  return feed->Send(frame.about.SerializeAsString(), frame.data);
}

void FrameFeedSink::End(const absl::Status& why) {
  if (const auto feed = feed_.lock()) feed->End(why);
}

}  // namespace octavo::rpc
