#include "server/scan/product_maker.h"

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::ResolvedKnown;
using testing::ScanSurroundings;

/// Products of a volume in which each voxel holds its y.
class ProductMakerTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kRows = 40, kColumns = 6;

  void SetUp() override {
    Device& device = SharedDevice(GetParam());
    ASSERT_THAT(lanes_.OpenStreams(), IsOk());
    ASSERT_THAT(lanes_.Allocate(), IsOk());
    volume_.slot = std::make_shared<VolumeSlot>();
    ASSERT_THAT(AllocateSlot(of_.scan, device, volume_.slot.get()), IsOk());
    const int64_t plane = kColumns * of_.scan.shape[2];
    for (int64_t y = 0; y < kRows; ++y) {
      ASSERT_THAT(device.Fill(lanes_.compute(), volume_.slot->volume.as<uint8_t>() + y * plane,
                              plane, static_cast<uint32_t>(y) * 0x01010101u),
                  IsOk());
    }
    of_.publisher.ScanStarted("scans/x", {}, {.extents = {kRows, kColumns, of_.scan.shape[2]}});
  }
  void TearDown() override { (void)lanes_.Synchronize(); }
  std::shared_ptr<Subscription> Want(int64_t plane) {
    SubscribeSpec spec{.products = {Product::kBscan}, .previews = true};
    spec.axis = FrameAxis::kY;
    spec.axis_given = true;
    spec.plane_index = plane;
    auto subscription = of_.publisher.Subscribe(spec, [] {});
    EXPECT_THAT(subscription.status(), IsOk());
    return *std::move(subscription);
  }
  ProductMaker Maker(bool source_waits = false) {
    return ProductMaker(of_.scan, &lanes_,
                        {.scan = "scans/x",
                         .publisher = &of_.publisher,
                         .frames = frames_,
                         .source_waits = source_waits,
                         .ring_occupancy = [this] { return occupancy_; },
                         .volumes_behind = [this] { return behind_; }});
  }
  /// Numbers of B-scans that were made and that were left out.
  std::pair<int, int> Make(ProductMaker& maker) {
    Completion item;
    EXPECT_THAT(maker.Make(volume_, &item), IsOk());
    EXPECT_THAT(maker.stream().Synchronize(), IsOk());
    std::pair<int, int> counts;
    for (PendingFrame& frame : item.frames) {
      if (frame.key.product != Product::kBscan) continue;
      ++(frame.yielded ? counts.second : counts.first);
      if (frame.yielded) continue;
      made_.push_back(frame.key.plane_index);
      EXPECT_EQ(static_cast<const uint8_t*>(frame.frame.payload.data)[0], frame.key.plane_index);
    }
    return counts;
  }

  ScanSurroundings of_{
      ResolvedKnown({.ascans_per_bscan = kColumns, .bscans_per_volume = kRows, .volumes = 1})};
  DeviceLanes lanes_{of_.scan, of_.Charge({&SharedDevice(GetParam())})};
  const std::shared_ptr<FramePool> frames_ =
      std::make_shared<FramePool>(&SharedDevice(GetParam()), 64 << 20);
  ActiveVolume volume_{AscanCoverage({})};
  std::vector<int64_t> made_;
  double occupancy_ = 0;
  int behind_ = 0;
};

TEST_P(ProductMakerTest, WhatSubscribersWantIsMadeOfTheCompleteVolume) {
  const auto three = Want(3), seven = Want(7);
  ProductMaker maker = Maker();
  ASSERT_THAT(maker.Allocate(), IsOk());
  EXPECT_EQ(Make(maker), std::pair(2, 0));
  Completion preview;
  ASSERT_THAT(maker.MakePreview(volume_, &preview), IsOk());
  EXPECT_TRUE(
      preview.frames.empty());  // half a volume gives no planes, and no client wants the MIP
}

TEST_P(ProductMakerTest, ThoseYieldWhenTheScanIsBehind) {
  const auto three = Want(3);
  ProductMaker maker = Maker();
  ASSERT_THAT(maker.Allocate(), IsOk());
  behind_ = 2;
  EXPECT_EQ(Make(maker), std::pair(0, 1));
  behind_ = 0;
  EXPECT_EQ(Make(maker), std::pair(1, 0));
  occupancy_ = 0.75;
  EXPECT_EQ(Make(maker), std::pair(0, 1));
  ProductMaker patient = Maker(/*source_waits=*/true);
  ASSERT_THAT(patient.Allocate(), IsOk());
  behind_ = 5;
  EXPECT_EQ(Make(patient), std::pair(1, 0));
}

TEST_P(ProductMakerTest, WhatIsLeftOutComesFirstTheNextTime) {
  std::vector<std::shared_ptr<Subscription>> subscriptions;
  for (int64_t y = 0; y < kRows; ++y) subscriptions.push_back(Want(y));
  ProductMaker maker = Maker();
  ASSERT_THAT(maker.Allocate(), IsOk());
  behind_ = 2;  // the limit is 32 halves
  EXPECT_EQ(Make(maker), std::pair(0, 40));
  behind_ = 1;
  EXPECT_EQ(Make(maker), std::pair(16, 24));
  EXPECT_EQ(Make(maker), std::pair(16, 24));
  EXPECT_EQ(Make(maker), std::pair(16, 24));
  made_.resize(40);
  std::sort(made_.begin(), made_.end());
  EXPECT_EQ(std::unique(made_.begin(), made_.end()), made_.end());
}

TEST_P(ProductMakerTest, PreviewsKeepTheirRate) {
  of_.scan.spec.products.preview_rate_hz = 10;
  ProductMaker maker = Maker();
  EXPECT_TRUE(maker.PreviewIsDue(1'000'000'000));
  EXPECT_FALSE(maker.PreviewIsDue(1'099'000'000));
  EXPECT_TRUE(maker.PreviewIsDue(1'100'000'000));
  of_.scan.spec.products.preview_rate_hz = -1;
  EXPECT_FALSE(maker.PreviewIsDue(9'000'000'000));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProductMakerTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
