#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "server/exports/frame_feed.h"
#include "server/model/subscription.h"
#include "server/rpc/frame_pump.h"

namespace octavo::rpc {

/// One subscription whose frames go into memory that its client maps: moves them from a pump to a
/// feed, and what the feed says to the pump. The feed owns it until its client has gone.
class FrameFeedSink final : public exports::FrameSender,
                            public FrameSink,
                            public std::enable_shared_from_this<FrameFeedSink> {
 public:
  FrameFeedSink(std::weak_ptr<exports::FrameFeed> feed, std::shared_ptr<FramePump> pump)
      : feed_(std::move(feed)), pump_(std::move(pump)) {}

  /// What is subscribed. Before the feed is issued: frames wait there for the client.
  void Subscribed(std::shared_ptr<model::Subscription> subscription);
  /// Ends the subscription. Idempotent.
  void Close();

  // Of the feed.
  void Begin() override;
  void HasRoom() override { pump_->Wake(); }
  void Over() override { Close(); }

  // Of the pump.
  void Guard(const std::function<void()>& step) override;
  bool Ready() override;
  bool SendsAtOnce(int64_t bytes) override;
  bool TakesEnd() override { return true; }
  absl::Status Send(OutgoingFrame frame) override;
  void End(const absl::Status& why) override;

 private:
  const std::weak_ptr<exports::FrameFeed> feed_;
  const std::shared_ptr<FramePump> pump_;
  Mutex mutex_;
  std::shared_ptr<model::Subscription> subscription_
      ABSL_GUARDED_BY(mutex_);  // until the client is there
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace octavo::rpc
