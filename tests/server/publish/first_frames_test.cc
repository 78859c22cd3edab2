#include "server/publish/first_frames.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

MATCHER_P2(IsRefused, code, reason, "is an error with this code and reason") {
  *result_listener << arg.ToString();
  return arg.code() == code && InfoOf(arg).reason == reason;
}

using octavo::testing::IsError;

class FirstFramesTest : public ::testing::Test {
 protected:
  FirstFramesTest() {
    topics_.Start("scans/a", {}, {.extents = {4, 8, 16}});
    scan_ = topics_.Find("scans/a");
  }
  void Add(int count, Product product = Product::kMip, bool complete = true) {
    for (int i = 0; i < count; ++i) {
      Frame frame;
      frame.parent = "scans/a";
      frame.product = product;
      frame.complete = complete;
      frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
      topics_.Add(*scan_, {.product = product}, std::move(frame));
    }
  }
  absl::StatusOr<FirstFrames> Find(SubscribeSpec spec) {
    spec.parent = "scans/a";
    if (spec.products.empty()) spec.products = {Product::kMip};
    return FindFirstFrames(spec, *scan_, held_, clock_);
  }

  octavo::testing::FakeClock clock_;
  std::shared_ptr<int64_t> memory_ = std::make_shared<int64_t>(7);
  TopicTable topics_{1 << 30, 1 << 30};
  TopicTable::Scan* scan_ = nullptr;
  std::vector<VolumeStatus> held_;
};

TEST_F(FirstFramesTest, LatestGetsThePictureThatIsThereAndOthersOnlyNewOnes) {
  Add(3);
  ASSERT_OK_AND_ASSIGN(const FirstFrames latest, Find({}));
  ASSERT_EQ(latest.at_once.size(), 1u);
  EXPECT_EQ(latest.at_once[0].second->sequence, 2u);
  EXPECT_TRUE(latest.replay.empty());
  ASSERT_OK_AND_ASSIGN(const FirstFrames oldest, Find({.delivery = Delivery::kDropOldest}));
  EXPECT_TRUE(oldest.at_once.empty() && oldest.replay.empty());
}

TEST_F(FirstFramesTest, ResumeReplaysWhatIsKeptFromANumberOn) {
  Add(4);
  ASSERT_OK_AND_ASSIGN(const FirstFrames first,
                       Find({.delivery = Delivery::kLossless, .resume = true, .from_sequence = 2}));
  ASSERT_EQ(first.replay.size(), 2u);
  EXPECT_EQ(first.replay[0]->sequence, 2u);
  const auto gone = Find({.resume = true, .from_sequence = 5});
  EXPECT_THAT(gone, IsError(absl::StatusCode::kOutOfRange, "kept are 0 to 4"));
  EXPECT_EQ(InfoOf(gone.status()).reason, Reason::kSequenceGone);
  auto numbers = InfoOf(gone.status()).numbers;  // payloads have no order
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, (decltype(numbers){{"first_available", "0"}, {"next", "4"}}));
}

TEST_F(FirstFramesTest, PreviewsAreLeftOutIfTheyAreNotWanted) {
  Add(1);
  Add(1, Product::kMip, /*complete=*/false);
  ASSERT_OK_AND_ASSIGN(const FirstFrames first, Find({.previews = false}));
  ASSERT_EQ(first.at_once.size(), 1u);
  EXPECT_EQ(first.at_once[0].second->sequence, 0u);
}

TEST_F(FirstFramesTest, WhatTheScanDoesNotShowIsRefused) {
  EXPECT_EQ(InfoOf(Find({.products = {Product::kAip}}).status()).reason, Reason::kNoAip);
  EXPECT_EQ(InfoOf(Find({.products = {Product::kAngiogram}}).status()).reason,
            Reason::kNoAngiogram);
  EXPECT_THAT(Find({.products = {Product::kBscan}, .plane_index = 4}),
              IsError(absl::StatusCode::kOutOfRange, "index is 4; the axis has 0 to 3"));
  scan_->show.striped = true;
  EXPECT_EQ(
      InfoOf(
          Find({.products = {Product::kMip}, .axis = FrameAxis::kX, .axis_given = true}).status())
          .reason,
      Reason::kStriped);
  EXPECT_TRUE(Find({}).ok());
}

TEST_F(FirstFramesTest, SlabsAreOfScansAndWithinTheirDepth) {
  const SubscribeSpec slab{.products = {Product::kMip}, .slab = {.begin = 4, .end = 16}};
  EXPECT_THAT(Find(slab), IsError(absl::StatusCode::kInvalidArgument, "for scans only"));
  scan_->show.has_records = true;
  EXPECT_TRUE(Find(slab).ok());
  SubscribeSpec deep = slab;
  deep.slab.end = 17;
  EXPECT_THAT(Find(deep), IsError(absl::StatusCode::kOutOfRange, "slab.end is 17"));
  scan_->show.striped = true;
  EXPECT_EQ(InfoOf(Find(slab).status()).reason, Reason::kStriped);
}

TEST_F(FirstFramesTest, TheFramesOfASlabAreATopicOfTheirOwn) {
  scan_->show.has_records = true;
  Add(2);
  const SubscribeSpec slab{.products = {Product::kMip}, .slab = {.begin = 4, .end = 8}};
  ASSERT_OK_AND_ASSIGN(const FirstFrames none, Find(slab));
  EXPECT_TRUE(none.at_once.empty() && none.replay.empty());
  Frame frame;
  frame.parent = "scans/a";
  frame.slab = slab.slab;
  frame.payload = {.owner = memory_, .data = memory_.get(), .size = 8};
  topics_.Add(*scan_, {.product = Product::kMip, .slab = slab.slab}, std::move(frame));
  ASSERT_OK_AND_ASSIGN(const FirstFrames one, Find(slab));
  ASSERT_EQ(one.at_once.size(), 1u);
  EXPECT_EQ(one.at_once[0].second->sequence, 0u);
}

TEST_F(FirstFramesTest, AnEndedScanGivesWhatIsKeptOrSaysWhyNothingComes) {
  Add(2);
  topics_.End("scans/a", 1);
  EXPECT_TRUE(Find({}).ok());
  EXPECT_THAT(Find({.delivery = Delivery::kLossless}),
              IsError(absl::StatusCode::kFailedPrecondition, "resume from sequence 0"));
  EXPECT_EQ(InfoOf(Find({.products = {Product::kEvent}}).status()).reason, Reason::kNothingKept);
}

TEST_F(FirstFramesTest, BscansOfAnEndedScanAreThoseOfItsHeldVolumesInTheirOrder) {
  for (const int64_t index : {1, 0, 2}) {
    VolumeStatus volume;
    volume.name = absl::StrCat("volumes/", index);
    volume.index = index;
    std::copy_n(std::array<int64_t, 3>{4, 8, 16}.begin(), 3, volume.shape);
    held_.push_back(volume);
  }
  EXPECT_TRUE(Find({.products = {Product::kBscan}})->replay.empty()) << "it runs";
  topics_.End("scans/a", 1);
  const auto volumes = [&](Delivery delivery) {
    std::vector<std::string> names;
    const auto first = Find({.products = {Product::kBscan}, .delivery = delivery});
    for (const FramePtr& frame : first->replay) {
      EXPECT_EQ(frame->payload.data, nullptr) << "it is loaded when its turn comes";
      names.push_back(frame->volume);
    }
    return names;
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(volumes(Delivery::kLossless), Strings({"volumes/0", "volumes/1", "volumes/2"}));
  EXPECT_EQ(volumes(Delivery::kLatest), Strings({"volumes/2", "volumes/1", "volumes/0"}))
      << "older ones only if the newest is gone";
}

TEST_F(FirstFramesTest, ARequestIsCheckedByItself) {
  const std::vector<Product> mip = {Product::kMip};
  EXPECT_TRUE(CheckSpec({.products = mip}).ok());
  EXPECT_THAT(CheckSpec({}), IsError(absl::StatusCode::kInvalidArgument, "products"));
  EXPECT_THAT(CheckSpec({.products = mip, .queue_length = 1025}),
              IsError(absl::StatusCode::kInvalidArgument, "queue_length"));
  EXPECT_THAT(CheckSpec({.products = mip, .max_rate_hz = -1}),
              IsError(absl::StatusCode::kInvalidArgument, "max_rate_hz"));
  EXPECT_THAT(CheckSpec({.products = mip, .resume = true}),
              IsError(absl::StatusCode::kInvalidArgument, "from_sequence"));
  EXPECT_THAT(CheckSpec({.products = {Product::kAip}, .axis = FrameAxis::kX, .axis_given = true}),
              IsError(absl::StatusCode::kInvalidArgument, "AIP"));
}

TEST_F(FirstFramesTest, OnlyScansHaveSpectra) {
  for (const Product product : {Product::kSpectrum, Product::kAscan}) {
    EXPECT_THAT(Find({.products = {product}}).status(),
                IsRefused(absl::StatusCode::kFailedPrecondition, Reason::kNoSpectra));
  }
  scan_->show.has_records = true;
  EXPECT_THAT(Find({.products = {Product::kAscan}}).status(), octavo::testing::IsOk());
  EXPECT_THAT(Find({.products = {Product::kAscan}, .plane_index = 8}).status(),
              IsRefused(absl::StatusCode::kOutOfRange, Reason::kBadRange));
  scan_->show.no_ascans = "needs too much";
  EXPECT_THAT(Find({.products = {Product::kSpectrum}}).status(), octavo::testing::IsOk());
  for (const SubscribeSpec& spec :
       {SubscribeSpec{.products = {Product::kAscan}},
        SubscribeSpec{.products = {Product::kSpectrum}, .corrected = true}}) {
    EXPECT_THAT(Find(spec).status(),
                IsRefused(absl::StatusCode::kFailedPrecondition, Reason::kNoSpectra));
  }
}

TEST_F(FirstFramesTest, TheNewestSpectrumComesAtOnce) {
  scan_->show.has_records = true;
  Add(2, Product::kSpectrum);
  ASSERT_OK_AND_ASSIGN(const FirstFrames first, Find({.products = {Product::kSpectrum}}));
  ASSERT_EQ(first.at_once.size(), 1u);
  EXPECT_EQ(first.at_once[0].second->sequence, 1u);
  ASSERT_OK_AND_ASSIGN(const FirstFrames other,
                       Find({.products = {Product::kSpectrum}, .corrected = true}));
  EXPECT_TRUE(other.at_once.empty());
  topics_.End("scans/a", 0);
  EXPECT_THAT(Find({.products = {Product::kSpectrum}, .corrected = true}).status(),
              IsRefused(absl::StatusCode::kFailedPrecondition, Reason::kNothingKept));
}

TEST(CheckSpecTest, SpectraAreNotLossless) {
  EXPECT_THAT(CheckSpec({.products = {Product::kSpectrum}, .delivery = Delivery::kLossless}),
              IsRefused(absl::StatusCode::kInvalidArgument, Reason::kBadField));
  EXPECT_THAT(CheckSpec({.products = {Product::kSpectrum}, .delivery = Delivery::kDropOldest}),
              octavo::testing::IsOk());
}

}  // namespace
}  // namespace octavo::engine
