// One subscriber's queue by itself: the delivery classes, replay and loading, silence after Close.

#include "server/publish/subscriber_queue.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/publish/frames.h"
#include "tests/support/fake_clock.h"
#include "tests/support/held_frames.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using Strings = std::vector<std::string>;

class SubscriberQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<SubscriberQueue> Make(SubscribeSpec spec) {
    spec.parent = "scans/a";
    return std::make_shared<SubscriberQueue>(
        spec, [this] { ++notified_; }, &held_frames_, &clock_, counters_);
  }
  FramePtr Image(uint64_t sequence, Product product = Product::kMip) {
    Frame frame;
    frame.parent = "scans/a";
    frame.product = product;
    frame.axis = product == Product::kBscan ? FrameAxis::kY : FrameAxis::kZ;
    frame.sequence = sequence;
    frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
    return std::make_shared<const Frame>(frame);
  }
  static bool Push(SubscriberQueue& queue, const FramePtr& frame) {
    return queue.Push({.product = frame->product, .axis = frame->axis}, frame);
  }
  /// "sequence/dropped_before" of what there is to take.
  static Strings TakeAll(SubscriberQueue& queue) {
    Strings taken;
    for (Delivered d; queue.Take(&d);)
      taken.push_back(absl::StrCat(d.frame->sequence, "/", d.dropped_before));
    return taken;
  }
  int64_t Dropped(const std::string& why) {
    Stats stats;
    counters_->AddTo(&stats);
    return stats.frames_dropped[{"mip", why}];
  }

  octavo::testing::FakeClock clock_;
  octavo::testing::HeldFrames held_frames_;
  std::shared_ptr<FrameCounters> counters_ = std::make_shared<FrameCounters>();
  std::shared_ptr<int64_t> memory_ = std::make_shared<int64_t>(7);
  int notified_ = 0;
};

TEST_F(SubscriberQueueTest, TheDeliveryClassSaysWhatStays) {
  const auto latest = Make({.delivery = Delivery::kLatest}),
             oldest = Make({.delivery = Delivery::kDropOldest, .queue_length = 2}),
             lossless = Make({.delivery = Delivery::kLossless, .queue_length = 2});
  for (uint64_t i = 0; i < 5; ++i) {
    for (const auto& queue : {latest, oldest, lossless}) (void)Push(*queue, Image(i));
  }
  EXPECT_EQ(TakeAll(*latest), Strings({"4/4"}));
  EXPECT_EQ(TakeAll(*oldest), Strings({"3/3", "4/0"}));
  EXPECT_EQ(TakeAll(*lossless), Strings({"0/0", "1/0"}));
  absl::Status status;
  ASSERT_TRUE(lossless->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "resume from sequence 2"));
  EXPECT_FALSE(latest->Ended(&status));
  EXPECT_EQ(Dropped("latest"), 4);
  EXPECT_EQ(Dropped("drop_oldest"), 3);
  EXPECT_EQ(notified_, 0) << "the publisher notifies, without its lock";
  latest->Notify();
  EXPECT_EQ(notified_, 1);
}

TEST_F(SubscriberQueueTest, WithoutAClassEachProductHasItsOwn) {
  const auto queue = Make({.products = {Product::kMip, Product::kVolume, Product::kEvent}});
  for (uint64_t i = 0; i < 256; ++i) {
    (void)Push(*queue, Image(i));
    (void)Push(*queue, Image(i, Product::kEvent));
    if (i < 2) (void)Push(*queue, Image(i, Product::kVolume));
  }
  std::map<Product, int> taken;
  for (Delivered d; queue->Take(&d);) {
    ++taken[d.frame->product];
    EXPECT_EQ(d.dropped_before, d.frame->product == Product::kMip ? 255u : 0u);
  }
  EXPECT_EQ(taken[Product::kMip], 1) << "the newest";
  EXPECT_EQ(taken[Product::kVolume], 2);
  EXPECT_EQ(taken[Product::kEvent], 256) << "none is dropped in silence";
  // Full queues end the stream, each product's own.
  for (const Product product : {Product::kVolume, Product::kEvent}) {
    const auto full = Make({.products = {Product::kMip, Product::kVolume, Product::kEvent}});
    const uint64_t length = product == Product::kVolume ? 2 : 256;
    for (uint64_t i = 0; i < length; ++i) (void)Push(*full, Image(i, product));
    (void)Push(*full, Image(0));
    absl::Status status;
    EXPECT_FALSE(full->Ended(&status));
    (void)Push(*full, Image(length, product));
    EXPECT_EQ(TakeAll(*full).size(), length + 1);
    ASSERT_TRUE(full->Ended(&status));
    EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted,
                                absl::StrCat("queue of ", length, " frames is full")));
  }
}

TEST_F(SubscriberQueueTest, ALengthIsThatOfEachProduct) {
  const auto queue = Make({.products = {Product::kMip, Product::kEvent},
                           .delivery = Delivery::kDropOldest,
                           .queue_length = 3});
  for (uint64_t i = 0; i < 4; ++i) (void)Push(*queue, Image(i, Product::kEvent));
  for (uint64_t i = 10; i < 14; ++i) (void)Push(*queue, Image(i));
  EXPECT_EQ(TakeAll(*queue), Strings({"1/1", "2/0", "3/0", "11/1", "12/0", "13/0"}));
}

TEST_F(SubscriberQueueTest, ARateLimitLeavesWhatIsLosslessAlone) {
  const auto queue = Make({.products = {Product::kMip, Product::kEvent}, .max_rate_hz = 10});
  for (uint64_t i = 0; i < 3; ++i) {
    (void)Push(*queue, Image(i));
    (void)Push(*queue, Image(i, Product::kEvent));
    (void)TakeAll(*queue);
  }
  (void)Push(*queue, Image(3, Product::kEvent));
  EXPECT_EQ(TakeAll(*queue), Strings({"3/0"})) << "the MIP waits for its time, no event does";
  EXPECT_TRUE(queue->HeldBack());
}

TEST_F(SubscriberQueueTest, NewFramesOfOneProductBehindAReplayDropNoneOfAnother) {
  held_frames_.load = [](const FramePtr&, const octavo::testing::HeldFrames::Done&) {};
  const auto queue = Make({.products = {Product::kBscan, Product::kMip, Product::kEvent},
                           .delivery = Delivery::kDropOldest,
                           .queue_length = 1});
  queue->Replay({WithoutPayload(*Image(0, Product::kBscan))});  // it never loads
  (void)Push(*queue, Image(0, Product::kEvent));
  for (uint64_t i = 0; i < 5; ++i) (void)Push(*queue, Image(i));
  for (uint64_t i = 1; i < 4; ++i) (void)Push(*queue, Image(i, Product::kBscan));
  EXPECT_EQ(Dropped("drop_oldest"), 4) << "MIPs alone";
}

TEST_F(SubscriberQueueTest, APreviewThatIsNotWantedIsNoLoss) {
  const auto queue = Make({.delivery = Delivery::kDropOldest, .previews = false});
  Frame preview = *Image(0);
  preview.complete = false;
  EXPECT_FALSE(Push(*queue, std::make_shared<const Frame>(preview)));
  EXPECT_TRUE(Push(*queue, Image(1)));
  EXPECT_EQ(TakeAll(*queue), Strings({"1/1"}));
  EXPECT_EQ(Dropped("drop_oldest"), 0);
}

TEST_F(SubscriberQueueTest, ALostFrameCutsOnlyALosslessQueue) {
  const auto latest = Make({.delivery = Delivery::kLatest}),
             lossless = Make({.delivery = Delivery::kLossless});
  const TopicKey key{.product = Product::kMip};
  EXPECT_FALSE(latest->Lose("scans/a", key, 0, Loss::kYielded));
  EXPECT_TRUE(lossless->Lose("scans/a", key, 0, Loss::kYielded));
  absl::Status status;
  ASSERT_TRUE(lossless->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "without losing records"));
  EXPECT_EQ(InfoOf(status).reason, Reason::kFrameLost) << "the subscriber was not slow";
  const auto full = Make({.delivery = Delivery::kLossless, .queue_length = 1});
  (void)Push(*full, Image(0));
  (void)Push(*full, Image(1));
  (void)TakeAll(*full);
  ASSERT_TRUE(full->Ended(&status));
  EXPECT_EQ(InfoOf(status).reason, Reason::kSlowSubscriber);
  model::Stats stats;
  counters_->AddTo(&stats);
  EXPECT_EQ(stats.streams_cut["frame_lost"], 1);
  EXPECT_EQ(stats.streams_cut["slow_subscriber"], 1);
}

TEST_F(SubscriberQueueTest, ARateLimitHoldsBackTheNewest) {
  const auto queue = Make({.delivery = Delivery::kLatest, .max_rate_hz = 10});
  (void)Push(*queue, Image(0));
  EXPECT_EQ(TakeAll(*queue), Strings({"0/0"}));
  EXPECT_FALSE(queue->HeldBack());
  (void)Push(*queue, Image(1));
  (void)Push(*queue, Image(2));
  EXPECT_EQ(TakeAll(*queue), Strings());
  EXPECT_TRUE(queue->HeldBack());
  clock_.Advance(0.11);
  EXPECT_EQ(TakeAll(*queue), Strings({"2/1"}));
}

TEST_F(SubscriberQueueTest, ReplayedFramesComeBeforeNewOnes) {
  const auto queue = Make({.delivery = Delivery::kDropOldest, .queue_length = 2, .resume = true});
  queue->Replay({Image(0), Image(1)});
  for (uint64_t i = 2; i < 6; ++i) EXPECT_FALSE(Push(*queue, Image(i))) << "it is awake anyway";
  EXPECT_EQ(TakeAll(*queue), Strings({"2/2", "3/0", "4/0", "5/0"}));
  EXPECT_TRUE(Push(*queue, Image(6)));
  EXPECT_EQ(TakeAll(*queue), Strings({"6/0"}));
}

TEST_F(SubscriberQueueTest, AFrameOfAHeldVolumeIsLoadedWhenItsTurnComes) {
  std::vector<octavo::testing::HeldFrames::Done> loads;
  held_frames_.load = [&](const FramePtr&, const octavo::testing::HeldFrames::Done& done) {
    loads.push_back(done);
  };
  const auto queue = Make({.products = {Product::kBscan}, .delivery = Delivery::kLossless});
  const FramePtr first = Image(0, Product::kBscan), second = Image(1, Product::kBscan);
  queue->Replay({WithoutPayload(*first), WithoutPayload(*second)});
  ASSERT_EQ(loads.size(), 1u) << "one at a time";
  EXPECT_EQ(TakeAll(*queue), Strings());
  loads[0](first);
  EXPECT_EQ(notified_, 1);
  EXPECT_EQ(loads.size(), 1u) << "the next when this one was taken";
  EXPECT_EQ(TakeAll(*queue), Strings({"0/0"}));
  ASSERT_EQ(loads.size(), 2u);
  loads[1](absl::NotFoundError("gone"));
  queue->End();
  absl::Status status;
  EXPECT_TRUE(queue->Ended(&status));
  EXPECT_THAT(status, IsOk());
}

// Whoever has the memory gives it back: often the same subscriber, with the frame before.
TEST_F(SubscriberQueueTest, AShortageOfMemoryIsWaitedForAWhile) {
  const absl::Status shortage =
      WithInfo(absl::ResourceExhaustedError("others have it"),
               {.reason = Reason::kNoStaging, .field = "", .numbers = {{"retryable", "true"}}});
  const auto never = [&] {
    ErrorInfo info = InfoOf(shortage);
    info.numbers.clear();
    return WithInfo(absl::ResourceExhaustedError("never enough"), info);
  }();
  std::vector<octavo::testing::HeldFrames::Done> loads;
  held_frames_.load = [&](const FramePtr&, const octavo::testing::HeldFrames::Done& done) {
    loads.push_back(done);
  };
  const FramePtr first = Image(0, Product::kVolume), second = Image(1, Product::kVolume);
  const auto replaying = [&] {
    const auto queue = Make({.products = {Product::kVolume}, .delivery = Delivery::kLossless});
    loads.clear();
    queue->Replay({WithoutPayload(*first), WithoutPayload(*second)});
    EXPECT_EQ(loads.size(), 1u);
    return queue;
  };
  absl::Status status;

  auto queue = replaying();
  EXPECT_FALSE(queue->HeldBack());
  for (size_t i = 0; i < 100; ++i) {
    loads[i](shortage);
    EXPECT_TRUE(queue->HeldBack());
    EXPECT_EQ(TakeAll(*queue), Strings());
    ASSERT_EQ(loads.size(), i + 1) << "not before the next tick";
    clock_.Advance(0.05);
    queue->Tick();
    ASSERT_EQ(loads.size(), i + 2);
    queue->Tick();
    ASSERT_EQ(loads.size(), i + 2) << "one at a time";
  }
  EXPECT_EQ(notified_, 0);
  loads.back()(first);
  EXPECT_EQ(notified_, 1);
  EXPECT_FALSE(queue->HeldBack());
  EXPECT_EQ(TakeAll(*queue), Strings({"0/0"}));
  // Each frame has its own time.
  loads.back()(shortage);
  clock_.Advance(29);
  queue->Tick();
  loads.back()(shortage);
  EXPECT_FALSE(queue->Ended(&status));
  clock_.Advance(2);
  queue->Tick();
  loads.back()(shortage);
  ASSERT_TRUE(queue->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "others have it"));
  EXPECT_EQ(InfoOf(status).reason, Reason::kNoFrame);

  queue = replaying();
  loads.back()(never);
  EXPECT_TRUE(queue->Ended(&status));

  queue = replaying();
  loads.back()(shortage);
  queue->Close();
  queue->Tick();
  EXPECT_EQ(loads.size(), 1u);
}

// A client that resumes volumes by their numbers learns where it can go on.
TEST_F(SubscriberQueueTest, AVolumeThatHasGoneEndsASubscriptionThatResumes) {
  held_frames_.load = [](const FramePtr&, const octavo::testing::HeldFrames::Done& done) {
    done(absl::NotFoundError("gone"));
  };
  using Numbers = std::vector<std::pair<std::string, std::string>>;
  const auto numbers_after = [&](std::vector<FramePtr> replay, const FramePtr& later) {
    const auto queue = Make({.products = {Product::kVolume}, .resume = true, .from_sequence = 3});
    if (later != nullptr) (void)Push(*queue, later);
    queue->Replay(std::move(replay));
    absl::Status status;
    EXPECT_TRUE(queue->Ended(&status));
    EXPECT_THAT(status, IsError(absl::StatusCode::kOutOfRange, "volume frame 3 "));
    EXPECT_EQ(InfoOf(status).reason, Reason::kSequenceGone);
    EXPECT_EQ(InfoOf(status).field, "from_sequence");
    Numbers numbers = InfoOf(status).numbers;  // payloads have no order
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  };
  const FramePtr third = WithoutPayload(*Image(3, Product::kVolume)),
                 fourth = WithoutPayload(*Image(4, Product::kVolume)),
                 fifth = WithoutPayload(*Image(5, Product::kVolume));
  EXPECT_EQ(numbers_after({third}, nullptr), (Numbers{{"first_available", "4"}, {"next", "4"}}));
  EXPECT_EQ(numbers_after({third, fourth}, nullptr),
            (Numbers{{"first_available", "4"}, {"next", "5"}}));
  EXPECT_EQ(numbers_after({third, fourth}, fifth),
            (Numbers{{"first_available", "4"}, {"next", "6"}}));
  EXPECT_EQ(numbers_after({third}, fifth), (Numbers{{"first_available", "5"}, {"next", "6"}}));
}

TEST_F(SubscriberQueueTest, ALoadThatEndsAfterTheCloseIsDropped) {
  octavo::testing::HeldFrames::Done loaded;
  held_frames_.load = [&](const FramePtr&, const octavo::testing::HeldFrames::Done& done) {
    loaded = done;
  };
  auto queue = Make({.products = {Product::kBscan}});
  const FramePtr frame = Image(0, Product::kBscan);
  queue->Replay({WithoutPayload(*frame)});
  queue->Close();
  loaded(frame);
  queue->Notify();
  EXPECT_EQ(notified_, 0);
  EXPECT_EQ(TakeAll(*queue), Strings());
  EXPECT_TRUE(queue->closed());
}

TEST_F(SubscriberQueueTest, AScanIsForgottenUnlessItsFramesWait) {
  const auto queue = Make({.delivery = Delivery::kDropOldest});
  (void)Push(*queue, Image(5));
  queue->ForgetScans([](const std::string&) { return false; });
  EXPECT_EQ(TakeAll(*queue), Strings({"5/0"}));
  queue->ForgetScans([](const std::string&) { return false; });
  (void)Push(*queue, Image(9));
  EXPECT_EQ(TakeAll(*queue), Strings({"9/0"})) << "it begins anew";
}

}  // namespace
}  // namespace octavo::engine
