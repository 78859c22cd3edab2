#include "server/scan/volume_frames.h"

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::FewAscans;
using testing::ScanSurroundings;

class VolumeFramesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(frames_.OpenStream(SharedDevice("host")), IsOk());
    volume_.slot = std::make_shared<VolumeSlot>();
    ASSERT_THAT(AllocateSlot(of_.scan, SharedDevice("host"), volume_.slot.get()), IsOk());
    ASSERT_THAT(SharedDevice("host").Fill(frames_.stream(), volume_.slot->volume.data(),
                                          of_.scan.volume_bytes, 0x2A2A2A2A),
                IsOk());
    ASSERT_THAT(frames_.stream().Synchronize(), IsOk());
    VolumeStatus& status = volume_.status;
    status.name = "volumes/1";
    status.scan = "scans/x";
    status.index = 5;
    std::copy(of_.scan.shape, of_.scan.shape + 3, status.shape);
    status.dtype = DType::kU8;
    status.bytes = of_.scan.volume_bytes;
    of_.store.Add(status, volume_.slot, 0);
    of_.store.Seal(status, true);
    of_.publisher.ScanStarted("scans/x", {}, {});
  }
  std::shared_ptr<Subscription> Subscribe() {
    auto subscription = of_.publisher.Subscribe(
        {.products = {Product::kVolume}, .delivery = Delivery::kDropOldest, .queue_length = 100},
        [] {});
    EXPECT_THAT(subscription.status(), IsOk());
    return *std::move(subscription);
  }
  int64_t Lost() {
    Stats stats;
    of_.publisher.AddTo(&stats);
    return stats.frames_dropped[{"volume", "no_memory"}];
  }

  ScanSurroundings of_{FewAscans()};
  VolumeFrames frames_{"scans/x", &of_.store, &of_.publisher,
                       std::make_shared<FramePool>(&SharedDevice("host"), 16 << 20)};
  ActiveVolume volume_{AscanCoverage({})};
};

TEST_F(VolumeFramesTest, NothingIsCopiedThatNobodyWants) {
  frames_.Offer(volume_);
  EXPECT_FALSE(frames_.KeepsSlots());
}

TEST_F(VolumeFramesTest, AWholeVolumeComesToItsSubscriber) {
  const auto subscription = Subscribe();
  frames_.Offer(volume_);
  EXPECT_TRUE(frames_.KeepsSlots());
  frames_.Close();
  frames_.Run();  // copies the frames offered before the end
  EXPECT_FALSE(frames_.KeepsSlots());
  Delivered next;
  ASSERT_TRUE(subscription->Take(&next));
  EXPECT_EQ(next.frame->volume, "volumes/1");
  EXPECT_EQ(next.frame->volume_index, 5);
  ASSERT_EQ(next.frame->payload.size, of_.scan.volume_bytes);
  const auto* data = static_cast<const uint8_t*>(next.frame->payload.data);
  EXPECT_TRUE(std::all_of(data, data + of_.scan.volume_bytes, [](uint8_t v) { return v == 0x2A; }));
}

TEST_F(VolumeFramesTest, WhatFallsBehindIsLostAndDoesNotPileUp) {
  const auto subscription = Subscribe();
  for (ptrdiff_t i = 0; i < VolumeFrames::kMostWaiting + 3; ++i) frames_.Offer(volume_);
  frames_.Close();
  frames_.Run();
  EXPECT_EQ(Lost(), 3);
  ptrdiff_t frames = 0;
  for (Delivered next; subscription->Take(&next);) ++frames;
  EXPECT_EQ(frames, VolumeFrames::kMostWaiting);
}

TEST_F(VolumeFramesTest, AVolumeThatHasGoneMeanwhileIsLost) {
  const auto subscription = Subscribe();
  ASSERT_TRUE(of_.store.Discard("volumes/1", Reason::kDiscarded, "asked").ok());
  frames_.Offer(volume_);
  EXPECT_FALSE(frames_.KeepsSlots());
  frames_.Close();
  frames_.Run();
  EXPECT_EQ(Lost(), 1);
}

// What was copied before is not lost with it, and the number to resume from is right.
TEST_F(VolumeFramesTest, ALosslessSubscriberGetsWhatCameBeforeALoss) {
  auto lossless = of_.publisher.Subscribe(
      {.products = {Product::kVolume}, .delivery = Delivery::kLossless, .queue_length = 100},
      [] {});
  ASSERT_THAT(lossless.status(), IsOk());
  for (ptrdiff_t i = 0; i < VolumeFrames::kMostWaiting + 1; ++i) frames_.Offer(volume_);
  frames_.Close();
  frames_.Run();
  ptrdiff_t frames = 0;
  for (Delivered next; (*lossless)->Take(&next);) ++frames;
  EXPECT_EQ(frames, VolumeFrames::kMostWaiting);
  absl::Status status;
  ASSERT_TRUE((*lossless)->Ended(&status));
  EXPECT_THAT(status, octavo::testing::IsError(absl::StatusCode::kResourceExhausted,
                                               "resume from sequence 5"));
}

TEST_F(VolumeFramesTest, WhoReadsVolumesHearsOfThemAtOnceAndNothingIsCopied) {
  of_.publisher.ScanStarted("scans/x", {}, {.volume_bytes = 32 << 20});
  auto reader = of_.publisher.Subscribe({.products = {Product::kVolume},
                                         .delivery = Delivery::kLossless,
                                         .queue_length = 100,
                                         .volumes_by_read = true},
                                        [] {});
  ASSERT_THAT(reader.status(), IsOk());
  frames_.Offer(volume_);
  EXPECT_FALSE(frames_.KeepsSlots());
  Delivered next;
  ASSERT_TRUE((*reader)->Take(&next));
  EXPECT_EQ(next.frame->volume, "volumes/1");
  EXPECT_EQ(next.frame->volume_index, 5);
  EXPECT_EQ(next.frame->dtype, DType::kU8);
  EXPECT_EQ(next.frame->payload.size, 0);
  // Beside a subscriber whose copies have fallen behind it loses nothing.
  const auto other = Subscribe();
  for (ptrdiff_t i = 0; i < VolumeFrames::kMostWaiting + 3; ++i) frames_.Offer(volume_);
  EXPECT_TRUE(frames_.KeepsSlots());
  for (ptrdiff_t i = 0; i < VolumeFrames::kMostWaiting + 3; ++i) {
    ASSERT_TRUE((*reader)->Take(&next));
    EXPECT_EQ(next.frame->sequence, static_cast<uint64_t>(i + 1));
    EXPECT_EQ(next.dropped_before, 0u);
  }
  frames_.Close();
  frames_.Run();
  EXPECT_FALSE((*reader)->Take(&next));
  ASSERT_TRUE(other->Take(&next));
  EXPECT_EQ(next.frame->sequence, 1u);
  EXPECT_EQ(next.frame->payload.size, of_.scan.volume_bytes);
}

}  // namespace
}  // namespace octavo::engine
