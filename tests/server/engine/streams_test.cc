// What is asked for when a subscription has ended well: a picture that it did not show, and nothing
// else.

#include "server/engine/streams.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/support/fake_clock.h"
#include "tests/support/held_frames.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using model::Delivery;
using model::Product;
using model::SubscribeSpec;

class LastPicturesTest : public ::testing::Test {
 protected:
  LastPicturesTest() {
    publisher_.SetHeldFrames(&held_);
    publisher_.ScanStarted("scans/a", {}, {.extents = {4, 8, 16}, .has_records = true});
    held_.held_by = [this](const std::string&) {
      std::vector<model::VolumeStatus> volumes;
      for (int64_t i = 0; i < volumes_; ++i) {
        model::VolumeStatus& volume = volumes.emplace_back();
        volume.name = absl::StrCat("volumes/", i);
        volume.scan = "scans/a";
        volume.index = i;
        std::copy_n(std::array<int64_t, 3>{4, 8, 16}.begin(), 3, volume.shape);
      }
      return volumes;
    };
    held_.load = [](const model::FramePtr& header, const octavo::testing::HeldFrames::Done& done) {
      model::Frame frame = *header;
      const auto memory = std::make_shared<int64_t>(7);
      frame.payload = {.owner = memory, .data = memory.get(), .size = 8};
      done(std::make_shared<const model::Frame>(std::move(frame)));
    };
  }
  void End() {
    publisher_.ScanEnding("scans/a");
    publisher_.ScanEnded("scans/a");
  }
  /// "product/volume" of each frame; "none" if there is nothing to subscribe to.
  std::vector<std::string> Last(const SubscribeSpec& spec,
                                const std::map<Product, int64_t>& shown = {}) {
    const auto subscription = streams_.SubscribeToLast(spec, shown, [] {});
    if (!subscription.ok()) {
      EXPECT_EQ(subscription.status().code(), absl::StatusCode::kFailedPrecondition)
          << subscription.status();
      return {"none"};
    }
    std::vector<std::string> frames;
    for (model::Delivered d; (*subscription)->Take(&d);)
      frames.push_back(absl::StrCat(Name(d.frame->product), "/", d.frame->volume_index));
    absl::Status end;
    EXPECT_TRUE((*subscription)->Ended(&end));
    return frames;
  }
  using Strings = std::vector<std::string>;

  octavo::testing::FakeClock clock_;
  octavo::testing::HeldFrames held_;
  publish::Publisher publisher_{&clock_};
  const EarlierRuns earlier_{{}, TimePoint{}};
  Streams streams_{&publisher_, &held_, &earlier_};
  int64_t volumes_ = 3;
};

TEST_F(LastPicturesTest, TheNewestOfWhatWasNotShown) {
  End();
  EXPECT_EQ(Last({.parent = "scans/a", .products = {Product::kBscan}}), Strings{"bscan/2"});
  EXPECT_EQ(Last({.parent = "scans/a", .products = {Product::kBscan, Product::kAscan}},
                 {{Product::kBscan, 2}, {Product::kAscan, 1}}),
            Strings{"ascan/2"});
}

TEST_F(LastPicturesTest, NothingThatWasShown) {
  End();
  const SubscribeSpec spec{.parent = "scans/a", .products = {Product::kBscan}};
  EXPECT_EQ(Last(spec, {{Product::kBscan, 2}}), Strings{"none"});
  EXPECT_EQ(Last(spec, {{Product::kBscan, 5}}), Strings{"none"}) << "of a volume that is gone";
  volumes_ = 0;
  EXPECT_EQ(Last(spec), Strings{"none"});
}

TEST_F(LastPicturesTest, OnlyWhoWantsTheLatestOfOneScan) {
  End();
  for (const Delivery delivery : {Delivery::kDropOldest, Delivery::kLossless}) {
    EXPECT_EQ(Last({.parent = "scans/a", .products = {Product::kBscan}, .delivery = delivery}),
              Strings{"none"});
  }
  EXPECT_EQ(Last({.products = {Product::kBscan}}), Strings{"none"});
  EXPECT_EQ(Last({.parent = "scans/a", .products = {Product::kBscan}, .resume = true}),
            Strings{"none"});
}

TEST_F(LastPicturesTest, OnlyWhatIsCutFromVolumes) {
  End();
  EXPECT_EQ(
      Last({.parent = "scans/a", .products = {Product::kMip, Product::kVolume, Product::kEvent}}),
      Strings{"none"});
  EXPECT_EQ(Last({.parent = "scans/a", .products = {Product::kMip, Product::kBscan}}),
            Strings{"bscan/2"});
}

}  // namespace
}  // namespace octavo::engine
