#include "server/publish/publisher.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "server/memory/frame_pool.h"
#include "tests/support/fake_clock.h"
#include "tests/support/held_frames.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;

const TopicKey kMipKey{.product = Product::kMip};

class PublisherTest : public ::testing::Test {
 protected:
  PublisherTest() {
    publisher_.SetHeldFrames(&held_frames_);
    publisher_.ScanStarted("scans/a", {{"rig", "1"}}, {.extents = {4, 8, 16}});
  }

  void Publish(int count, Product product = Product::kMip, const std::string& scan = "scans/a",
               bool complete = true) {
    for (int i = 0; i < count; ++i) {
      Frame frame;
      frame.parent = scan;
      frame.product = product;
      frame.complete = complete;
      frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
      publisher_.Publish({.product = product}, std::move(frame));
    }
  }
  std::shared_ptr<Subscription> Subscribe(Delivery delivery, int64_t queue = 16, double rate = 0) {
    auto subscription = publisher_.Subscribe({.parent = "scans/a",
                                              .products = {Product::kMip},
                                              .delivery = delivery,
                                              .queue_length = queue,
                                              .max_rate_hz = rate},
                                             [this] { ++notified_; });
    EXPECT_TRUE(subscription.ok()) << subscription.status();
    return *subscription;
  }
  /// "sequence/dropped_before" of each available frame.
  static std::vector<std::string> TakeAll(Subscription& subscription) {
    std::vector<std::string> taken;
    for (Delivered d; subscription.Take(&d);)
      taken.push_back(absl::StrCat(d.frame->sequence, "/", d.dropped_before));
    return taken;
  }
  using Strings = std::vector<std::string>;

  FakeClock clock_;
  std::shared_ptr<int64_t> memory_ = std::make_shared<int64_t>(7);
  std::atomic<int> notified_{0};
  octavo::testing::HeldFrames held_frames_;
  Publisher publisher_{&clock_};
};

TEST_F(PublisherTest, LatestKeepsTheNewestAndCountsTheRest) {
  const auto subscription = Subscribe(Delivery::kLatest);
  Publish(1);
  EXPECT_EQ(TakeAll(*subscription), Strings({"0/0"}));
  Publish(5);
  EXPECT_EQ(TakeAll(*subscription), Strings({"5/4"}));
  EXPECT_EQ(TakeAll(*subscription), Strings());
}

TEST_F(PublisherTest, LatestSeesAPictureAtOnce) {
  Publish(3);
  EXPECT_EQ(TakeAll(*Subscribe(Delivery::kLatest)), Strings({"2/0"}));
  EXPECT_EQ(TakeAll(*Subscribe(Delivery::kDropOldest)), Strings());
}

TEST_F(PublisherTest, DropOldestKeepsTheLastOfItsQueue) {
  const auto subscription = Subscribe(Delivery::kDropOldest, 3);
  Publish(10);
  EXPECT_EQ(TakeAll(*subscription), Strings({"7/7", "8/0", "9/0"}));
}

TEST_F(PublisherTest, LosslessIsCutWhenFullAndResumesWithoutAGap) {
  const auto subscription = Subscribe(Delivery::kLossless, 4);
  Publish(7);
  EXPECT_EQ(TakeAll(*subscription), Strings({"0/0", "1/0", "2/0", "3/0"}));
  absl::Status status;
  ASSERT_TRUE(subscription->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "queue of 4 frames is full"));
  std::string resume_from;
  for (const auto& [name, value] : InfoOf(status).numbers) {
    if (name == "resume_from") resume_from = value;
  }
  EXPECT_EQ(resume_from, "4");
  ASSERT_OK_AND_ASSIGN(const auto again, publisher_.Subscribe({.parent = "scans/a",
                                                               .products = {Product::kMip},
                                                               .delivery = Delivery::kLossless,
                                                               .queue_length = 4,
                                                               .resume = true,
                                                               .from_sequence = 4},
                                                              [] {}));
  Publish(1);
  EXPECT_EQ(TakeAll(*again), Strings({"4/0", "5/0", "6/0", "7/0"}));
}

// A subscriber that resumes and reads nothing keeps only the frames to replay and a queue of new
// ones.
TEST_F(PublisherTest, WhatComesBehindAReplayIsBounded) {
  Publish(3);
  const auto resume = [&](Delivery delivery) {
    return publisher_
        .Subscribe({.parent = "scans/a",
                    .products = {Product::kMip},
                    .delivery = delivery,
                    .queue_length = 4,
                    .resume = true,
                    .from_sequence = 0},
                   [] {})
        .value();
  };
  const auto lossy = resume(Delivery::kDropOldest), latest = resume(Delivery::kLatest),
             lossless = resume(Delivery::kLossless);
  Publish(10);
  const Strings newest = {"6/6", "7/0", "8/0", "9/0", "10/0", "11/0", "12/0"};
  EXPECT_EQ(TakeAll(*lossy), newest);
  EXPECT_EQ(TakeAll(*latest), newest);
  EXPECT_EQ(TakeAll(*lossless), Strings({"0/0", "1/0", "2/0", "3/0", "4/0", "5/0", "6/0"}));
  absl::Status status;
  ASSERT_TRUE(lossless->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "resume from sequence 7"));
  Publish(1);
  EXPECT_EQ(TakeAll(*lossy), Strings({"13/0"}));
}

/// Volumes of scans/a with these indices.
std::vector<VolumeStatus> HeldVolumes(int64_t begin, int64_t end) {
  std::vector<VolumeStatus> held;
  for (int64_t i = begin; i < end; ++i) {
    VolumeStatus volume;
    volume.name = absl::StrCat("volumes/", i);
    volume.scan = "scans/a";
    volume.index = i;
    std::copy_n(std::array<int64_t, 3>{4, 8, 16}.begin(), 3, volume.shape);
    held.push_back(volume);
  }
  return held;
}

// B-scans of the held volumes after a scan has ended, with and without earlier subscribers. Each is
// loaded when its turn comes.
TEST_F(PublisherTest, BscansOfAScanThatHasEndedAreMadeOfItsHeldVolumes) {
  std::vector<VolumeStatus> held = HeldVolumes(0, 3);
  held_frames_.held_by = ([&](const std::string& scan) {
    return scan == "scans/a" ? held : std::vector<VolumeStatus>();
  });
  std::vector<std::string> asked;
  held_frames_.load =
      ([&](const FramePtr& header, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        asked.push_back(absl::StrCat(header->volume, " ", Name(header->axis), header->plane_index));
        auto loaded = std::make_shared<Frame>(*header);
        loaded->payload = {.owner = memory_, .data = memory_.get(), .size = 8};
        if (header->volume == "volumes/gone") return done(absl::NotFoundError("gone"));
        if (header->volume == "volumes/large")
          return done(absl::ResourceExhaustedError("no memory left"));
        done(loaded);
      });
  const auto subscribe = [&](Delivery delivery, SubscribeSpec spec = {}) {
    spec.parent = "scans/a";
    if (spec.products.empty()) spec.products = {Product::kBscan};
    spec.delivery = delivery;
    return publisher_.Subscribe(spec, [] {});
  };
  EXPECT_EQ(TakeAll(**subscribe(Delivery::kLatest)),
            Strings());  // the scan runs: new frames are published
  publisher_.ScanEnded("scans/a");
  ASSERT_OK_AND_ASSIGN(const auto latest, subscribe(Delivery::kLatest));
  EXPECT_EQ(TakeAll(*latest), Strings({"2/0"}));
  absl::Status status;
  EXPECT_TRUE(latest->Ended(&status));
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(asked, Strings({"volumes/2 y2"}));
  asked.clear();
  EXPECT_EQ(TakeAll(**subscribe(Delivery::kLossless,
                                {.axis = FrameAxis::kZ, .axis_given = true, .plane_index = 15})),
            Strings({"0/0", "1/0", "2/0"}));
  EXPECT_EQ(asked, Strings({"volumes/0 z15", "volumes/1 z15", "volumes/2 z15"}));
  EXPECT_EQ(TakeAll(**subscribe(Delivery::kLatest, {.resume = true, .from_sequence = 0})),
            Strings({"0/0", "1/0", "2/0"}));
  EXPECT_THAT(subscribe(Delivery::kLatest, {.plane_index = 4}).status(),
              IsError(absl::StatusCode::kOutOfRange, "0 to 3"));
  // Another product beside the B-scans; a volume that is gone before its turn.
  EXPECT_EQ(TakeAll(**subscribe(Delivery::kLatest, {.products = {Product::kMip, Product::kBscan}})),
            Strings({"2/0"}));
  held.back().name = "volumes/gone";
  asked.clear();
  ASSERT_OK_AND_ASSIGN(const auto second, subscribe(Delivery::kLatest));
  EXPECT_EQ(TakeAll(*second), Strings({"1/0"}));
  EXPECT_EQ(asked, Strings({"volumes/gone y2", "volumes/1 y2"}));
  ASSERT_TRUE(second->Ended(&status));
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(TakeAll(**subscribe(Delivery::kLossless)), Strings({"0/0", "1/0"}));
  held.erase(held.begin(), held.begin() + 2);
  ASSERT_OK_AND_ASSIGN(const auto gone, subscribe(Delivery::kLatest));
  EXPECT_EQ(TakeAll(*gone), Strings());
  ASSERT_TRUE(gone->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kFailedPrecondition,
                              "volumes/gone, of which a bscan was to be made, is gone meanwhile"));
  // A frame that exists but cannot be made now: no other frame silently replaces it.
  held = HeldVolumes(0, 2);
  held.back().name = "volumes/large";
  for (const Delivery delivery : {Delivery::kLatest, Delivery::kLossless}) {
    ASSERT_OK_AND_ASSIGN(const auto large, subscribe(delivery));
    EXPECT_EQ(TakeAll(*large).size(), delivery == Delivery::kLatest ? 0u : 1u);
    ASSERT_TRUE(large->Ended(&status));
    EXPECT_THAT(status,
                IsError(absl::StatusCode::kResourceExhausted,
                        "the server could not make a bscan of volumes/large: no memory left"));
    EXPECT_EQ(InfoOf(status).reason, Reason::kNoFrame);
  }
  // No volume is held: the error says why no frame comes and what the user can do.
  held.clear();
  EXPECT_EQ(InfoOf(subscribe(Delivery::kLossless, {.resume = true}).status()).reason,
            Reason::kNothingKept);
  EXPECT_THAT(subscribe(Delivery::kLatest).status(),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "nor is one of its volumes held; subscribe while"));
  EXPECT_EQ(InfoOf(subscribe(Delivery::kLatest).status()).reason, Reason::kNothingKept);
}

// The topics of an ended scan are forgotten after a while, and a daemon that starts again never
// knew them. The volumes are held all the same.
TEST_F(PublisherTest, BscansOfAForgottenScanAreMadeOfItsHeldVolumes) {
  held_frames_.held_by = [&](const std::string& scan) {
    return scan == "scans/old" ? HeldVolumes(0, 3) : std::vector<VolumeStatus>();
  };
  held_frames_.load =
      ([&](const FramePtr& header, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        auto loaded = std::make_shared<Frame>(*header);
        loaded->payload = {.owner = memory_, .data = memory_.get(), .size = 8};
        done(loaded);
      });
  const auto subscribe = [&](SubscribeSpec spec) {
    if (spec.parent.empty()) spec.parent = "scans/old";
    if (spec.products.empty()) spec.products = {Product::kBscan};
    return publisher_.Subscribe(spec, [] {});
  };
  ASSERT_OK_AND_ASSIGN(const auto all, subscribe({.delivery = Delivery::kLossless}));
  EXPECT_EQ(TakeAll(*all), Strings({"0/0", "1/0", "2/0"}));
  absl::Status status;
  EXPECT_TRUE(all->Ended(&status));
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(TakeAll(**subscribe({.axis = FrameAxis::kX,
                                 .axis_given = true,
                                 .plane_index = 7,
                                 .delivery = Delivery::kLatest})),
            Strings({"2/0"}));
  EXPECT_THAT(subscribe({.axis = FrameAxis::kX, .axis_given = true, .plane_index = 8}).status(),
              IsError(absl::StatusCode::kOutOfRange, "0 to 7"));
  EXPECT_THAT(subscribe({.products = {Product::kMip}}).status(),
              IsError(absl::StatusCode::kNotFound, "scans/old"));
  EXPECT_THAT(subscribe({.parent = "scans/none"}).status(),
              IsError(absl::StatusCode::kNotFound, "scans/none"));
  // Tomograms are cut into slices.
  std::vector<VolumeStatus> tomogram = HeldVolumes(0, 1);
  std::copy_n(std::array<std::string, 3>{"z", "y", "x"}.begin(), 3, tomogram[0].axes);
  held_frames_.held_by = [&](const std::string&) { return tomogram; };
  ASSERT_OK_AND_ASSIGN(const auto slices, subscribe({.plane_index = 3}));
  Delivered taken;
  ASSERT_TRUE(slices->Take(&taken));
  EXPECT_EQ(taken.frame->axis, FrameAxis::kZ);
  EXPECT_THAT(subscribe({.plane_index = 4}).status(),
              IsError(absl::StatusCode::kOutOfRange, "0 to 3"));
}

// A viewer took some B-scans while the scan ran, then the scan continued without the viewer.
TEST_F(PublisherTest, BscansThatAreKeptDoNotHideTheVolumesThatAreHeld) {
  std::vector<VolumeStatus> held = HeldVolumes(1, 4);
  held_frames_.held_by = ([&](const std::string&) { return held; });
  std::vector<std::string> asked;
  held_frames_.load =
      ([&](const FramePtr& header, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        asked.push_back(header->volume);
        auto loaded = std::make_shared<Frame>(*header);
        loaded->payload = {.owner = memory_, .data = memory_.get(), .size = 8};
        done(loaded);
      });
  for (const int64_t i : {0, 2}) {
    Frame frame;
    frame.parent = "scans/a";
    frame.volume = absl::StrCat("volumes/", i);
    frame.volume_index = i;
    frame.product = Product::kBscan;
    frame.axis = FrameAxis::kY;
    frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
    publisher_.Publish({.product = Product::kBscan, .axis = FrameAxis::kY}, std::move(frame));
  }
  publisher_.ScanEnded("scans/a");
  const auto take = [&](SubscribeSpec spec) {
    spec.parent = "scans/a";
    spec.products = {Product::kBscan, Product::kBscan};  // requested twice, delivered once
    if (spec.resume) spec.products.pop_back();
    auto subscription = publisher_.Subscribe(spec, [] {});
    EXPECT_THAT(subscription, IsOk());
    std::vector<std::string> volumes;
    for (Delivered delivered; (*subscription)->Take(&delivered);) {
      volumes.push_back(delivered.frame->volume);
      EXPECT_EQ(delivered.dropped_before, 0u) << delivered.frame->volume;
    }
    return volumes;
  };
  EXPECT_EQ(take({.delivery = Delivery::kLatest}), Strings({"volumes/3"}));
  EXPECT_EQ(asked, Strings({"volumes/3"}));
  EXPECT_EQ(take({.delivery = Delivery::kDropOldest}),
            Strings({"volumes/0", "volumes/1", "volumes/2", "volumes/3"}));
  EXPECT_EQ(take({.delivery = Delivery::kLossless, .resume = true}),
            Strings({"volumes/0", "volumes/1", "volumes/2", "volumes/3"}));
  asked.clear();
  held.clear();
  EXPECT_EQ(take({.delivery = Delivery::kLatest}), Strings({"volumes/2"}));
  EXPECT_EQ(asked, Strings());
}

// More volumes are held than LATEST tries: the kept frame is not lost.
TEST_F(PublisherTest, AFrameAtHandComesAfterManyVolumesThatAreGone) {
  held_frames_.held_by = ([&](const std::string&) { return HeldVolumes(1, 60); });
  held_frames_.load =
      ([&](const FramePtr&, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        done(absl::NotFoundError("gone"));
      });
  Frame frame;
  frame.parent = "scans/a";
  frame.volume = "volumes/0";
  frame.product = Product::kBscan;
  frame.axis = FrameAxis::kY;
  frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
  publisher_.Publish({.product = Product::kBscan, .axis = FrameAxis::kY}, std::move(frame));
  publisher_.ScanEnded("scans/a");
  ASSERT_OK_AND_ASSIGN(
      const auto latest,
      publisher_.Subscribe({.parent = "scans/a", .products = {Product::kBscan}}, [] {}));
  Delivered delivered;
  ASSERT_TRUE(latest->Take(&delivered));
  EXPECT_EQ(delivered.frame->volume, "volumes/0");
}

// Between the last block and the last event, a new subscriber finds an ended scan; an earlier one
// still gets the event.
TEST_F(PublisherTest, AScanThatIsEnding) {
  held_frames_.held_by = ([&](const std::string&) { return HeldVolumes(0, 1); });
  held_frames_.load =
      ([&](const FramePtr& header, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        done(header);
      });
  ASSERT_OK_AND_ASSIGN(
      const auto early,
      publisher_.Subscribe({.parent = "scans/a", .products = {Product::kEvent}}, [] {}));
  publisher_.ScanEnding("scans/a");
  ASSERT_OK_AND_ASSIGN(
      const auto late,
      publisher_.Subscribe({.parent = "scans/a", .products = {Product::kBscan}}, [] {}));
  EXPECT_EQ(TakeAll(*late), Strings({"0/0"}));
  absl::Status status;
  EXPECT_TRUE(late->Ended(&status));
  Publish(1, Product::kEvent);
  EXPECT_FALSE(early->Ended(&status));
  publisher_.ScanEnded("scans/a");
  EXPECT_EQ(TakeAll(*early), Strings({"0/0"}));
  EXPECT_TRUE(early->Ended(&status));
}

// The scan ends after the held volumes were asked for, and before the subscription is made.
TEST_F(PublisherTest, TheLastVolumeIsNotMissedWhenTheScanEndsMeanwhile) {
  int asked = 0;
  held_frames_.held_by = ([&](const std::string&) {
    if (++asked > 1) return HeldVolumes(0, 1);
    publisher_.ScanEnding("scans/a");
    return std::vector<VolumeStatus>();
  });
  held_frames_.load =
      ([&](const FramePtr& header, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        done(header);
      });
  ASSERT_OK_AND_ASSIGN(
      const auto subscription,
      publisher_.Subscribe({.parent = "scans/a", .products = {Product::kBscan}}, [] {}));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(TakeAll(*subscription), Strings({"0/0"}));
}

// The newest volume is gone: the other requested frames still come.
TEST_F(PublisherTest, AVolumeThatIsGoneTakesNoOtherProductWithIt) {
  held_frames_.load =
      ([&](const FramePtr&, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        done(absl::NotFoundError("gone"));
      });
  Publish(2);
  Publish(1, Product::kVolume);
  publisher_.ScanEnded("scans/a");
  ASSERT_OK_AND_ASSIGN(const auto both,
                       publisher_.Subscribe({.parent = "scans/a",
                                             .products = {Product::kMip, Product::kVolume},
                                             .delivery = Delivery::kLatest},
                                            [] {}));
  EXPECT_EQ(TakeAll(*both).size(), 1u);
  absl::Status status;
  ASSERT_TRUE(both->Ended(&status));
  EXPECT_THAT(status, IsOk());
}

TEST_F(PublisherTest, PicturesOfAScanThatHasEnded) {
  held_frames_.held_by = ([](const std::string&) { return std::vector<VolumeStatus>(); });
  const auto subscribe = [&](SubscribeSpec spec) {
    spec.parent = "scans/a";
    if (spec.products.empty()) spec.products = {Product::kMip};
    return publisher_.Subscribe(spec, [] {});
  };
  Publish(2);
  Publish(1, Product::kMip, "scans/a", /*complete=*/false);
  publisher_.ScanEnded("scans/a");
  EXPECT_EQ(TakeAll(**subscribe({})), Strings({"2/0"}));
  EXPECT_EQ(TakeAll(**subscribe({.previews = false})), Strings({"1/0"}));
  EXPECT_THAT(subscribe({.delivery = Delivery::kLossless}).status(),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "come with resume from sequence 0, one product at a time"));
  EXPECT_THAT(subscribe({.axis = FrameAxis::kX, .axis_given = true}).status(),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "no frame of mip is kept; derive one from a volume while that is held"));
  EXPECT_THAT(subscribe({.products = {Product::kEvent}}).status(),
              IsError(absl::StatusCode::kFailedPrecondition,
                      "has ended and no frame of event is kept; subscribe while it runs"));
  EXPECT_THAT(subscribe({.products = {Product::kVolume}}).status(),
              IsError(absl::StatusCode::kFailedPrecondition, "(ReadVolume)"));
}

TEST_F(PublisherTest, ResumeOfWhatIsGoneNamesWhatIsKept) {
  Publish(100);
  const SubscribeSpec spec{
      .parent = "scans/a", .products = {Product::kMip}, .resume = true, .from_sequence = 3};
  EXPECT_THAT(publisher_.Subscribe(spec, [] {}),
              IsError(absl::StatusCode::kOutOfRange, "kept are 36 to 100"));
  SubscribeSpec future = spec;
  future.from_sequence = 101;
  EXPECT_THAT(publisher_.Subscribe(future, [] {}),
              IsError(absl::StatusCode::kOutOfRange, "kept are 36 to 100"));
}

TEST_F(PublisherTest, WhatIsOnlyRememberedStaysWithinItsMemory) {
  const int64_t block = FramePool::BlockBytes(8);
  Publisher small(&clock_, 10 * block);
  std::vector<std::weak_ptr<int64_t>> alive;
  const auto publish = [&](const std::string& scan, int count) {
    for (int i = 0; i < count; ++i) {
      auto memory = std::make_shared<int64_t>(i);
      alive.push_back(memory);
      Frame frame;
      frame.parent = scan;
      frame.product = Product::kMip;
      frame.payload = {.owner = memory, .data = memory.get(), .size = 8};
      small.Publish(kMipKey, std::move(frame));
    }
  };
  const auto living = [&] {
    return std::count_if(alive.begin(), alive.end(),
                         [](const auto& weak) { return !weak.expired(); });
  };
  for (const char* scan : {"scans/slow", "scans/old", "scans/new"})
    small.ScanStarted(scan, {}, {.extents = {4, 8, 16}});
  publish("scans/slow", 1);  // the only picture of a running scan stays
  publish("scans/old", 8);
  EXPECT_EQ(living(), 9);
  small.ScanEnded("scans/old");
  publish("scans/new", 4);
  EXPECT_EQ(living(), 10);
  const auto kept_of = [&](const std::string& scan) {
    const auto refused = small.Subscribe(
        {.parent = scan, .products = {Product::kMip}, .resume = true, .from_sequence = 1000},
        [] {});
    const auto numbers = InfoOf(refused.status()).numbers;
    for (const auto& [name, value] : numbers) {
      if (name == "first_available") return value;
    }
    return std::string();
  };
  EXPECT_EQ(kept_of("scans/slow"), "0");
  EXPECT_EQ(kept_of("scans/old"), "3");
  EXPECT_EQ(kept_of("scans/new"), "0");
  publish("scans/new", 20);
  EXPECT_EQ(living(), 10);
  EXPECT_EQ(kept_of("scans/slow"), "0");
  EXPECT_EQ(kept_of("scans/old"), "8");  // none is kept
  EXPECT_EQ(kept_of("scans/new"), "15");
}

TEST(FramePoolTest, FramesLeaveAQuarterToWhatComesAndGoes) {
  auto opened = OpenDevices("host");
  ASSERT_THAT(opened.status(), IsOk());
  const auto pool =
      std::make_shared<FramePool>(opened->devices[0].get(), 16 * FramePool::BlockBytes(1));
  std::vector<std::shared_ptr<void>> frames, staging;
  const auto take_all = [&](FramePool::Use use, std::vector<std::shared_ptr<void>>* blocks) {
    for (auto block = pool->Get(1, use); block.ok(); block = pool->Get(1, use))
      blocks->push_back(*std::move(block));
  };
  take_all(FramePool::Use::kFrame, &frames);
  EXPECT_EQ(frames.size(), 12u);
  take_all(FramePool::Use::kStaging, &staging);
  EXPECT_EQ(staging.size(), 4u);
  frames.pop_back();
  staging.push_back(pool->Get(1).value());
  EXPECT_NE(staging.back(), nullptr);
  EXPECT_FALSE(pool->Get(1, FramePool::Use::kFrame).ok());  // no frame is left at all
  staging.clear();
  EXPECT_THAT(pool->Get(1, FramePool::Use::kFrame), IsOk());
  EXPECT_EQ(frames.size(), 11u);
}

TEST_F(PublisherTest, VolumesAreResumedThroughTheLoader) {
  std::vector<uint64_t> loaded;
  held_frames_.load =
      ([&](const FramePtr& header, const std::function<void(absl::StatusOr<FramePtr>)>& done) {
        EXPECT_EQ(header->payload.data, nullptr) << "a remembered volume holds no memory";
        loaded.push_back(header->sequence);
        auto full = std::make_shared<Frame>(*header);
        full->payload = {.owner = memory_, .data = memory_.get(), .size = 8};
        if (header->sequence == 4) return done(absl::FailedPreconditionError("discarded"));
        done(full);
      });
  Publish(6, Product::kVolume);
  ASSERT_OK_AND_ASSIGN(const auto subscription,
                       publisher_.Subscribe({.parent = "scans/a",
                                             .products = {Product::kVolume},
                                             .delivery = Delivery::kLossless,
                                             .resume = true,
                                             .from_sequence = 2},
                                            [] {}));
  EXPECT_EQ(TakeAll(*subscription), Strings({"2/0", "3/0"}));
  absl::Status status;
  ASSERT_TRUE(subscription->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kOutOfRange, "volume frame 4"));
  EXPECT_EQ(loaded, (std::vector<uint64_t>{2, 3, 4}));
}

// Volumes, whose data some subscribers read and others get: one topic, the same numbers.
class VolumesByRead : public PublisherTest {
 protected:
  static constexpr int64_t kBytes = 32 << 20;
  const TopicKey key_{.product = Product::kVolume};

  VolumesByRead() { Start("scans/a"); }
  void Start(const std::string& scan, publish::VolumesStay stay = publish::VolumesStay::kUntilAsked,
             int64_t bytes = kBytes) {
    publisher_.ScanStarted(scan, {}, {.volume_bytes = bytes, .volumes_stay = stay});
  }
  std::shared_ptr<Subscription> Volumes(bool by_read, Delivery delivery = Delivery::kLossless,
                                        std::optional<uint64_t> from = {},
                                        const std::string& scan = "scans/a") {
    auto subscription = publisher_.Subscribe({.parent = scan,
                                              .products = {Product::kVolume},
                                              .delivery = delivery,
                                              .queue_length = 4,
                                              .resume = from.has_value(),
                                              .from_sequence = from.value_or(0),
                                              .volumes_by_read = by_read},
                                             [this] { ++notified_; });
    EXPECT_TRUE(subscription.ok()) << subscription.status();
    return *subscription;
  }
  Frame Header(const std::string& scan = "scans/a") const {
    Frame frame;
    frame.parent = scan;
    frame.volume = "volumes/1";
    frame.product = Product::kVolume;
    frame.shape = {64, 512, 1024};
    frame.payload.size = kBytes;
    return frame;
  }
  uint64_t Announce(const std::string& scan = "scans/a") {
    return publisher_.Announce(key_, Header(scan));
  }
  void Deliver(uint64_t sequence, const std::string& scan = "scans/a") {
    Frame frame = Header(scan);
    frame.sequence = sequence;
    frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
    publisher_.Deliver(key_, std::move(frame));
  }
  bool WantsData(const std::string& scan = "scans/a") {
    const auto wanted = publisher_.WantedOf(scan);
    EXPECT_EQ(wanted.size(), 1u);
    return !wanted.empty() && wanted[0].data;
  }
};

TEST_F(VolumesByRead, AReaderGetsTheHeaderAtOnceAndOthersTheDataUnderTheSameNumber) {
  const auto reader = Volumes(true);
  EXPECT_FALSE(WantsData()) << "nothing is copied for readers alone";
  EXPECT_EQ(Announce(), 0u);
  const auto other = Volumes(false);
  EXPECT_TRUE(WantsData());
  EXPECT_EQ(Announce(), 1u);
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    Delivered next;
    ASSERT_TRUE(reader->Take(&next));
    EXPECT_EQ(next.frame->sequence, sequence);
    EXPECT_EQ(next.dropped_before, 0u);
    EXPECT_EQ(next.frame->volume, "volumes/1");
    EXPECT_EQ(next.frame->shape, (std::vector<int64_t>{64, 512, 1024}));
    EXPECT_EQ(next.frame->payload.data, nullptr);
    EXPECT_EQ(next.frame->payload.size, 0) << "it is not to be loaded either";
  }
  EXPECT_EQ(TakeAll(*other), Strings()) << "its data are still on their way";
  Deliver(1);
  Delivered next;
  ASSERT_TRUE(other->Take(&next));
  EXPECT_EQ(next.frame->sequence, 1u);
  EXPECT_EQ(next.frame->payload.size, 8);
  EXPECT_EQ(TakeAll(*reader), Strings()) << "the data are not for it";
}

TEST_F(VolumesByRead, DataThatWereLostAreLostToThoseAloneWhoWantThem) {
  const auto reader = Volumes(true), lossless = Volumes(false),
             dropping = Volumes(false, Delivery::kDropOldest);
  for (int i = 0; i < 3; ++i) Announce();
  Deliver(0);
  publisher_.Undelivered("scans/a", key_, 1);
  Deliver(2);
  EXPECT_EQ(TakeAll(*reader), Strings({"0/0", "1/0", "2/0"}));
  EXPECT_EQ(TakeAll(*dropping), Strings({"0/0", "2/1"}));
  EXPECT_EQ(TakeAll(*lossless), Strings({"0/0"}));
  absl::Status status;
  ASSERT_TRUE(lossless->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "resume from sequence 1"));
  EXPECT_FALSE(reader->Ended(&status));
}

TEST_F(VolumesByRead, DeliveryIsThatOfOtherFrames) {
  const auto latest = Volumes(true, Delivery::kLatest), lossless = Volumes(true),
             dropping = Volumes(true, Delivery::kDropOldest);
  for (int i = 0; i < 6; ++i) Announce();
  EXPECT_EQ(TakeAll(*latest), Strings({"5/5"}));
  EXPECT_EQ(TakeAll(*dropping), Strings({"2/2", "3/0", "4/0", "5/0"}));
  EXPECT_EQ(TakeAll(*lossless), Strings({"0/0", "1/0", "2/0", "3/0"}));
  absl::Status status;
  ASSERT_TRUE(lossless->Ended(&status));
  EXPECT_EQ(InfoOf(status).reason, Reason::kSlowSubscriber);
}

// A volume that was announced is kept, and a subscriber finds it whose data are still on their way.
TEST_F(VolumesByRead, WhoResumesGetsEachVolumeOnce) {
  std::vector<uint64_t> loaded;
  held_frames_.load = [&](const FramePtr& header, const octavo::testing::HeldFrames::Done& done) {
    loaded.push_back(header->sequence);
    auto full = std::make_shared<Frame>(*header);
    full->payload = {.owner = memory_, .data = memory_.get(), .size = 8};
    done(full);
  };
  const auto before = Volumes(false);
  for (int i = 0; i < 3; ++i) Announce();
  Deliver(0);
  const auto from_second = Volumes(false, Delivery::kLossless, 1),
             from_next = Volumes(false, Delivery::kLossless, 3),
             reader = Volumes(true, Delivery::kLossless, 1),
             lost = Volumes(false, Delivery::kLossless, 2);
  Deliver(1);
  publisher_.Undelivered("scans/a", key_, 2);  // it is loaded for those who find it kept
  Announce();
  Deliver(3);
  EXPECT_EQ(TakeAll(*before), Strings({"0/0", "1/0"}));
  EXPECT_EQ(TakeAll(*from_second), Strings({"1/0", "2/0", "3/0"}));
  EXPECT_EQ(TakeAll(*from_next), Strings({"3/0"}));
  EXPECT_EQ(TakeAll(*lost), Strings({"2/0", "3/0"}));
  const size_t before_reader = loaded.size();
  EXPECT_EQ(TakeAll(*reader), Strings({"1/0", "2/0", "3/0"}));
  EXPECT_EQ(loaded.size(), before_reader) << "a reader has nothing loaded";
  publisher_.ScanEnded("scans/a");
  const auto after = Volumes(true, Delivery::kLatest);
  Delivered next;
  ASSERT_TRUE(after->Take(&next));
  EXPECT_EQ(next.frame->sequence, 3u);
  EXPECT_EQ(next.frame->payload.size, 0);
}

// The announcement of a volume that a read would come too late for, or take longer than its data,
// is no use.
TEST_F(VolumesByRead, WhatCannotBeReadInTimeComesWithItsData) {
  using enum publish::VolumesStay;
  Start("scans/ring", kAWhile);
  Start("scans/gone", kNot);
  Start("scans/small", kUntilAsked, (16 << 20) - 1);
  Start("scans/large", kUntilAsked, 16 << 20);
  const struct {
    const char* scan;
    Delivery delivery;
    bool data;
  } cases[] = {
      {"scans/ring", Delivery::kLossless, true},    {"scans/ring", Delivery::kLatest, false},
      {"scans/ring", Delivery::kDropOldest, false}, {"scans/gone", Delivery::kLatest, true},
      {"scans/gone", Delivery::kLossless, true},    {"scans/small", Delivery::kLatest, true},
      {"scans/small", Delivery::kLossless, true},   {"scans/large", Delivery::kLossless, false}};
  for (const auto& one : cases) {
    SCOPED_TRACE(absl::StrCat(one.scan, " ", Name(one.delivery)));
    const auto reader = Volumes(true, one.delivery, {}, one.scan);
    EXPECT_EQ(WantsData(one.scan), one.data);
    const uint64_t sequence = Announce(one.scan);
    Delivered next;
    EXPECT_EQ(reader->Take(&next), !one.data);
    Deliver(sequence, one.scan);
    EXPECT_EQ(reader->Take(&next), one.data);
    reader->Close();
  }
}

TEST_F(PublisherTest, MaxRateLetsGoOfTheNewestInTime) {
  const auto latest = Subscribe(Delivery::kLatest, 16, 10),
             oldest = Subscribe(Delivery::kDropOldest, 16, 10);
  Publish(1);
  EXPECT_EQ(TakeAll(*latest), Strings({"0/0"}));
  Publish(3);
  EXPECT_EQ(TakeAll(*latest), Strings()) << "too early";
  EXPECT_EQ(TakeAll(*oldest), Strings({"0/0"}));
  clock_.Advance(0.11);
  const int before = notified_;
  publisher_.Tick();
  EXPECT_GT(notified_, before);
  EXPECT_EQ(TakeAll(*latest), Strings({"3/2"}));
  Publish(1);
  EXPECT_EQ(TakeAll(*oldest), Strings({"4/3"}));
}

TEST_F(PublisherTest, LostFramesTakeASequenceNumberAndCount) {
  const auto dropping = Subscribe(Delivery::kDropOldest), lossless = Subscribe(Delivery::kLossless);
  Publish(1);
  publisher_.Lost("scans/a", kMipKey);
  Publish(1);
  EXPECT_EQ(TakeAll(*dropping), Strings({"0/0", "2/1"}));
  EXPECT_EQ(TakeAll(*lossless), Strings({"0/0"}));
  absl::Status status;
  ASSERT_TRUE(lossless->Ended(&status));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "no memory for the frame"));
}

TEST_F(PublisherTest, LabelsChooseScansNowAndLater) {
  std::vector<std::shared_ptr<Subscription>> all;
  for (const auto& labels : std::vector<std::map<std::string, std::string>>{
           {}, {{"rig", "1"}}, {{"rig", "2"}}, {{"rig", "1"}, {"eye", "left"}}}) {
    all.push_back(
        publisher_
            .Subscribe(
                {.labels = labels, .products = {Product::kMip}, .delivery = Delivery::kDropOldest},
                [] {})
            .value());
  }
  publisher_.ScanStarted("scans/b", {{"rig", "2"}}, {.extents = {1, 1, 1}});
  Publish(1);
  Publish(2, Product::kMip, "scans/b");
  EXPECT_EQ(TakeAll(*all[0]).size(), 3u);
  EXPECT_EQ(TakeAll(*all[1]).size(), 1u);
  EXPECT_EQ(TakeAll(*all[2]).size(), 2u);
  EXPECT_EQ(TakeAll(*all[3]).size(), 0u);
  publisher_.ScanEnded("scans/b");
  absl::Status status;
  EXPECT_FALSE(all[2]->Ended(&status)) << "more scans may come";
}

TEST_F(PublisherTest, BscansCutAcrossTheAxisThatTheScanSays) {
  publisher_.ScanStarted("jobs/t", {}, {.extents = {4, 8, 16}, .bscan_axis = FrameAxis::kZ});
  for (const auto& [name, given, axis, extent] : {std::tuple{"scans/a", false, FrameAxis::kY, 4},
                                                  {"jobs/t", false, FrameAxis::kZ, 16},
                                                  {"scans/a", true, FrameAxis::kX, 8},
                                                  {"jobs/t", true, FrameAxis::kY, 4}}) {
    SubscribeSpec spec{.parent = name,
                       .products = {Product::kBscan},
                       .axis = axis,
                       .axis_given = given,
                       .plane_index = extent};
    EXPECT_THAT(publisher_.Subscribe(spec, [] {}), IsError(absl::StatusCode::kOutOfRange, "index"))
        << name;
    --spec.plane_index;
    ASSERT_OK_AND_ASSIGN(const auto subscription, publisher_.Subscribe(spec, [] {}));
    const auto wanted = publisher_.WantedOf(name);
    ASSERT_EQ(wanted.size(), 1u);
    EXPECT_EQ(wanted[0].key.axis, axis) << name;
  }
}

TEST_F(PublisherTest, EndsWhenTheScanHasAndTheQueueIsEmpty) {
  const auto subscription = Subscribe(Delivery::kDropOldest);
  Publish(1);
  const int before = notified_;
  publisher_.ScanEnded("scans/a");
  EXPECT_GT(notified_, before);
  absl::Status status = absl::UnknownError("");
  EXPECT_FALSE(subscription->Ended(&status));
  EXPECT_EQ(TakeAll(*subscription), Strings({"0/0"}));
  EXPECT_TRUE(subscription->Ended(&status));
  EXPECT_THAT(status, IsOk());
}

TEST_F(PublisherTest, RefusesBadRequestsByName) {
  const auto with = [&](SubscribeSpec spec) { return publisher_.Subscribe(spec, [] {}); };
  const std::vector<Product> mip = {Product::kMip};
  EXPECT_THAT(with({.parent = "scans/a"}), IsError(absl::StatusCode::kInvalidArgument, "products"));
  EXPECT_THAT(with({.parent = "scans/a", .products = mip, .queue_length = 0}),
              IsError(absl::StatusCode::kInvalidArgument, "queue_length"));
  EXPECT_THAT(with({.parent = "scans/a", .products = mip, .max_rate_hz = -1}),
              IsError(absl::StatusCode::kInvalidArgument, "max_rate_hz"));
  EXPECT_THAT(with({.parent = "scans/a", .products = mip, .max_rate_hz = NAN}),
              IsError(absl::StatusCode::kInvalidArgument, "max_rate_hz"));
  EXPECT_THAT(with({.parent = "scans/z", .products = mip}),
              IsError(absl::StatusCode::kNotFound, "no scan scans/z"));
  EXPECT_THAT(with({.parent = "scans/a", .products = {Product::kAip}}),
              IsError(absl::StatusCode::kFailedPrecondition, "computes no AIP"));
  EXPECT_THAT(with({.parent = "scans/a", .products = {Product::kBscan}, .plane_index = 4}),
              IsError(absl::StatusCode::kOutOfRange, "index is 4"));
  EXPECT_THAT(with({.products = mip, .resume = true}),
              IsError(absl::StatusCode::kInvalidArgument, "from_sequence"));
}

// Consumers of every kind run beside a producer: each frame reaches each of them in order, or is
// counted as dropped.
TEST_F(PublisherTest, NothingIsLostUncountedUnderLoad) {
  constexpr uint64_t kFrames = 20'000;
  struct Consumer {
    std::shared_ptr<Subscription> subscription;
    uint64_t received = 0, dropped = 0, next = 0;
    bool ordered = true;
  };
  std::vector<Consumer> consumers(4);
  for (size_t i = 0; i < consumers.size(); ++i) {
    consumers[i].subscription = Subscribe(i % 2 == 0 ? Delivery::kLatest : Delivery::kDropOldest,
                                          static_cast<int64_t>(1 + 7 * i));
  }
  std::vector<std::thread> threads;
  for (auto& consumer : consumers) {
    threads.emplace_back([&consumer] {
      absl::Status status;
      do {
        for (Delivered d; consumer.subscription->Take(&d);) {
          ++consumer.received;
          consumer.dropped += d.dropped_before;
          consumer.ordered &= d.frame->sequence == consumer.next + d.dropped_before;
          consumer.next = d.frame->sequence + 1;
        }
        std::this_thread::yield();
      } while (!consumer.subscription->Ended(&status));
    });
  }
  Publish(kFrames);
  publisher_.ScanEnded("scans/a");
  for (auto& thread : threads) thread.join();
  for (const auto& consumer : consumers) {
    EXPECT_EQ(consumer.received + consumer.dropped, kFrames);
    EXPECT_TRUE(consumer.ordered);
    EXPECT_EQ(consumer.next, kFrames) << "the last one always comes";
  }
}

// After Close returns, no callback runs.
TEST_F(PublisherTest, NoNotificationAfterClose) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> closed{false}, late{false};
    auto subscription = publisher_
                            .Subscribe({.parent = "scans/a",
                                        .products = {Product::kMip},
                                        .delivery = Delivery::kDropOldest},
                                       [&] { late = late || closed; })
                            .value();
    std::thread producer([&] { Publish(20); });
    subscription->Close();
    closed = true;
    producer.join();
    EXPECT_FALSE(late);
  }
}

}  // namespace
}  // namespace octavo::engine
