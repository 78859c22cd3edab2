// The way of frames to one subscriber: all of them, in order, and each by the thread that should
// send it; and whoever publishes is never held up, whatever becomes of the subscriber.

#include "server/rpc/frame_pump.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/clock.h"
#include "server/publish/subscriber_queue.h"
#include "tests/support/status_matchers.h"

namespace octavo::rpc {
namespace {

using octavo::testing::IsOk;

/// Takes frames as the test says.
class Sink final : public FrameSink {
 public:
  void Guard(const std::function<void()>& step) override { step(); }
  bool Ready() override { return ready; }
  bool SendsAtOnce(int64_t bytes) override { return at_once && ready && bytes <= 64; }
  bool TakesEnd() override { return true; }
  absl::Status Send(OutgoingFrame frame) override {
    MutexLock lock(mutex_);
    sent_.push_back(frame.about.sequence());
    by_.push_back(std::this_thread::get_id());
    if (fails) return absl::DataLossError("as the test says");
    return absl::OkStatus();
  }
  void End(const absl::Status& why) override {
    MutexLock lock(mutex_);
    ends_.push_back(why);
  }

  std::vector<uint64_t> sent() {
    MutexLock lock(mutex_);
    return sent_;
  }
  std::vector<std::thread::id> by() {
    MutexLock lock(mutex_);
    return by_;
  }
  std::vector<absl::Status> ends() {
    MutexLock lock(mutex_);
    return ends_;
  }
  std::atomic<bool> ready{true}, at_once{true}, fails{false};

 private:
  Mutex mutex_;
  std::vector<uint64_t> sent_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> by_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> ends_ ABSL_GUARDED_BY(mutex_);
};

class FramePumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    queue_ = NewQueue(pump_->NotifiesThis());
    pump_->Start(queue_, sink_);
    // The step of the start has ended when a worker has run what was posted behind it.
    Rest();
  }
  void TearDown() override { pump_->Close(); }
  std::shared_ptr<publish::SubscriberQueue> NewQueue(FramePump::Notify notify) const {
    return std::make_shared<publish::SubscriberQueue>(
        model::SubscribeSpec{.products = {model::Product::kMip},
                             .delivery = model::Delivery::kLossless,
                             .queue_length = 1000},
        std::move(notify), nullptr, &clock_, std::make_shared<publish::FrameCounters>());
  }
  void Rest() {
    while (workers_.Pending() > 0) std::this_thread::yield();
  }
  /// As the publisher does.
  void Publish(int64_t bytes = 16, bool notify = true) {
    auto frame = std::make_shared<model::Frame>();
    frame->parent = "scans/x";
    frame->volume_index = static_cast<int64_t>(next_);
    frame->sequence = next_++;
    const auto data = std::make_shared<const std::string>(static_cast<size_t>(bytes), 'x');
    frame->payload = {.owner = data, .data = data->data(), .size = bytes};
    if (queue_->Push({.product = model::Product::kMip}, frame) && notify) queue_->Notify();
  }
  static std::vector<uint64_t> UpTo(uint64_t count) {
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < count; ++i) all.push_back(i);
    return all;
  }

  const SystemClock clock_;
  base::WorkerPool workers_{"workers", 2};
  SlowWork slow_;
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::shared_ptr<FramePump> pump_ = std::make_shared<FramePump>(
      SubscribeOptions{}, &workers_, &slow_, std::make_shared<picture::PictureCache>(),
      [this](const std::map<model::Product, int64_t>& shown, FramePump::Notify notify) {
        ++asked_;
        shown_ = shown;
        return last_pictures_(std::move(notify));
      });
  std::shared_ptr<publish::SubscriberQueue> queue_;
  int asked_ = 0;
  std::map<model::Product, int64_t> shown_;
  std::function<absl::StatusOr<std::shared_ptr<model::Subscription>>(FramePump::Notify)>
      last_pictures_ =
          [](const FramePump::Notify&) { return absl::FailedPreconditionError("nothing is kept"); };
  uint64_t next_ = 0;
};

TEST_F(FramePumpTest, TheThreadThatPublishesSendsASmallFrame) {
  for (int i = 0; i < 3; ++i) Publish();
  EXPECT_EQ(sink_->sent(), UpTo(3));
  for (const std::thread::id by : sink_->by()) EXPECT_EQ(by, std::this_thread::get_id());
  EXPECT_EQ(workers_.Pending(), 0) << "nothing is left to a worker";
}

TEST_F(FramePumpTest, ALargeFrameIsLeftToAWorker) {
  Publish(65);
  Publish(16);  // behind it
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(2));
  EXPECT_NE(sink_->by()[0], std::this_thread::get_id());
}

TEST_F(FramePumpTest, OneFrameAtATimeIsSentAtOnce) {
  for (int i = 0; i < 5; ++i) Publish(16, /*notify=*/i == 4);
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(5));
  EXPECT_EQ(sink_->by()[0], std::this_thread::get_id());
  for (size_t i = 1; i < 5; ++i) EXPECT_NE(sink_->by()[i], std::this_thread::get_id()) << i;
}

TEST_F(FramePumpTest, ASinkThatNeverSendsAtOnceHasWorkers) {
  sink_->at_once = false;
  Publish();
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(1));
  EXPECT_NE(sink_->by()[0], std::this_thread::get_id());
}

TEST_F(FramePumpTest, WhatASinkDoesNotTakeWaitsForTheWake) {
  Publish();
  sink_->ready = false;
  for (int i = 0; i < 3; ++i) Publish(i == 0 ? 65 : 16);
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(1));
  sink_->ready = true;
  pump_->Wake();
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(4));
}

TEST_F(FramePumpTest, TheEndComesBehindTheLastFrame) {
  sink_->ready = false;
  Publish();
  queue_->End();
  queue_->Notify();
  Rest();
  EXPECT_TRUE(sink_->ends().empty()) << "a frame waits";
  sink_->ready = true;
  pump_->Wake();
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(1));
  ASSERT_EQ(sink_->ends().size(), 1u);
  EXPECT_THAT(sink_->ends()[0], IsOk());
}

// The volumes are those of the numbers: the last subscription has an older one, too.
TEST_F(FramePumpTest, LastPicturesComeBeforeTheEndAndNoneTwice) {
  const auto first = queue_;
  last_pictures_ = [&](FramePump::Notify notify) { return queue_ = NewQueue(std::move(notify)); };
  Publish();
  Publish();
  first->End();
  first->Notify();
  Rest();
  EXPECT_TRUE(first->closed());
  EXPECT_EQ(shown_, (std::map<model::Product, int64_t>{{model::Product::kMip, 1}}));
  EXPECT_TRUE(sink_->ends().empty());
  next_ = 1;
  Publish();
  Publish();
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(3));
  queue_->End();
  queue_->Notify();
  Rest();
  ASSERT_EQ(sink_->ends().size(), 1u);
  EXPECT_THAT(sink_->ends()[0], IsOk());
  EXPECT_EQ(asked_, 1);
}

TEST_F(FramePumpTest, LastPicturesThatCannotBeMadeAreNoErrorOfTheStream) {
  const auto first = queue_;
  last_pictures_ = [&](FramePump::Notify notify) { return queue_ = NewQueue(std::move(notify)); };
  first->End();
  first->Notify();
  Rest();
  ASSERT_NE(queue_, first);
  EXPECT_TRUE(queue_->Lose("scans/x", {.product = model::Product::kMip}, 0,
                           publish::Loss::kNoMemory));  // LOSSLESS: it ends
  queue_->Notify();
  Rest();
  ASSERT_EQ(sink_->ends().size(), 1u);
  EXPECT_THAT(sink_->ends()[0], IsOk());
}

TEST_F(FramePumpTest, WithoutLastPicturesTheEndIsThatOfTheSubscription) {
  queue_->End();
  queue_->Notify();
  Rest();
  EXPECT_EQ(asked_, 1);
  ASSERT_EQ(sink_->ends().size(), 1u);
  EXPECT_THAT(sink_->ends()[0], IsOk());
}

TEST_F(FramePumpTest, AfterAnErrorNothingIsAskedFor) {
  EXPECT_TRUE(queue_->Lose("scans/x", {.product = model::Product::kMip}, 0,
                           publish::Loss::kNoMemory));  // LOSSLESS
  queue_->Notify();
  Rest();
  ASSERT_EQ(sink_->ends().size(), 1u);
  EXPECT_EQ(sink_->ends()[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(asked_, 0);
}

TEST_F(FramePumpTest, ACloseWhileItAsksClosesWhatItGets) {
  std::shared_ptr<publish::SubscriberQueue> last;
  last_pictures_ = [&](FramePump::Notify notify) {
    last = NewQueue(std::move(notify));
    pump_->Close();
    return last;
  };
  queue_->End();
  queue_->Notify();
  Rest();
  ASSERT_NE(last, nullptr);
  EXPECT_TRUE(last->closed());
  EXPECT_TRUE(sink_->ends().empty());
}

// Whoever publishes calls the pump while the subscription notifies it, and Close waits for that.
TEST_F(FramePumpTest, WhoeverPublishesIsNotHeldUpByAnEnd) {
  queue_->End();
  queue_->Notify();
  Rest();
  EXPECT_EQ(sink_->ends().size(), 1u);
  EXPECT_TRUE(queue_->closed());
}

TEST_F(FramePumpTest, ASinkThatFailsEndsTheStreamOnce) {
  sink_->fails = true;
  for (int i = 0; i < 3; ++i) Publish();
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(1));
  ASSERT_EQ(sink_->ends().size(), 1u);
  EXPECT_EQ(sink_->ends()[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(queue_->closed());
}

// A publisher, a client that is slow now and then, and an end at any time.
TEST_F(FramePumpTest, NothingIsLostWhoeverSends) {
  constexpr uint64_t kFrames = 20000;
  std::atomic<bool> over{false};
  std::jthread client([&] {
    while (!over) {
      sink_->ready = false;
      std::this_thread::yield();
      sink_->at_once = !sink_->at_once;
      sink_->ready = true;
      pump_->Wake();
    }
  });
  for (uint64_t i = 0; i < kFrames; ++i) {
    Publish(i % 7 == 0 ? 65 : 16);
    while (next_ - sink_->sent().size() > 900) std::this_thread::yield();  // LOSSLESS
  }
  over = true;
  client.join();
  queue_->End();
  queue_->Notify();
  Rest();
  EXPECT_EQ(sink_->sent(), UpTo(kFrames));
  EXPECT_EQ(sink_->ends().size(), 1u);
}

TEST_F(FramePumpTest, ItEndsWhileFramesCome) {
  std::jthread closer([&] {
    while (sink_->sent().size() < 100) std::this_thread::yield();
    pump_->Close();
  });
  while (!queue_->closed()) Publish();
  closer.join();
  const size_t sent = sink_->sent().size();
  for (int i = 0; i < 3; ++i) Publish();
  Rest();
  EXPECT_EQ(sink_->sent().size(), sent) << "a closed pump sends no more";
}

}  // namespace
}  // namespace octavo::rpc
