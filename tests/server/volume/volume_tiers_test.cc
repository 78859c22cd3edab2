#include "server/volume/volume_tiers.h"

#include "gpu/base/status.h"
#include "tests/server/volume/table_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class SomeBytes final : public SpilledVolume {
 public:
  explicit SomeBytes(int* removed) : removed_(removed) {}
  Tier tier() const override { return Tier::kDisk; }
  int64_t bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    return absl::NotFoundError("no bytes");
  }
  void Remove() const override { ++*removed_; }

 private:
  int* const removed_;
};

class VolumeTiersTest : public TableFixture {
 protected:
  std::shared_ptr<const SpilledVolume> Spilled() {
    return std::make_shared<const SomeBytes>(&removed_);
  }
  int removed_ = 0;
  VolumeTiers tiers_{table_};
};

TEST_F(VolumeTiersTest, ThereAndBack) {
  const auto slot = Held("volumes/a", {});
  With("volumes/a", [](VolumeEntry& entry) { entry.stripe_bscans = 4; });
  ASSERT_OK_AND_ASSIGN(VolumeHold hold, tiers_.BeginSpill("volumes/a"));
  EXPECT_EQ(hold.slot, slot.lock());
  EXPECT_EQ(Get("volumes/a").moving, Move::kSpilling);
  hold.Release();
  tiers_.EndSpill("volumes/a", Spilled());
  EXPECT_TRUE(slot.expired());
  VolumeStatus now = Get("volumes/a");
  EXPECT_EQ(now.tier, Tier::kDisk);
  EXPECT_EQ(now.moving, Move::kNone);
  EXPECT_EQ(now.stripe_bscans, 0) << "in one piece";
  EXPECT_THAT(tiers_.BeginRelocate("volumes/a"),
              IsError(absl::StatusCode::kFailedPrecondition, "not on its device (tier DISK)"));

  ASSERT_OK_AND_ASSIGN(hold, tiers_.BeginRestore("volumes/a"));
  EXPECT_NE(hold.spilled, nullptr);
  EXPECT_EQ(Get("volumes/a").moving, Move::kRestoring);
  tiers_.EndRestore("volumes/a", Slot(), 1);
  EXPECT_EQ(removed_, 1);
  now = Get("volumes/a");
  EXPECT_EQ(now.tier, Tier::kDevice);
  EXPECT_EQ(now.device, "devices/1");
  // The volume is on the device: no restore begins.
  ASSERT_OK_AND_ASSIGN(hold, tiers_.BeginRestore("volumes/a"));
  EXPECT_NE(hold.slot, nullptr);
  EXPECT_EQ(Get("volumes/a").moving, Move::kNone);
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(VolumeTiersTest, OneMoveAtATime) {
  for (const Move move : {Move::kSpilling, Move::kRestoring, Move::kRelocating}) {
    const std::string name = std::string("volumes/") + Name(move);
    Held(name, {});
    With(name, [move](VolumeEntry& entry) { entry.moving = move; });
    for (const absl::Status& refused :
         {tiers_.BeginSpill(name).status(), tiers_.BeginRestore(name).status(),
          tiers_.BeginRelocate(name).status()}) {
      EXPECT_THAT(refused, IsError(absl::StatusCode::kFailedPrecondition,
                                   std::string("being moved already (") + Name(move) + ")"));
      EXPECT_EQ(InfoOf(refused).reason, Reason::kMoving);
    }
  }
  EXPECT_THAT(tiers_.BeginSpillOldest("scans/a"), IsError(absl::StatusCode::kNotFound, "scans/a"));
}

TEST_F(VolumeTiersTest, AMoveThatFailsLeavesTheVolumeWhereItIs) {
  const auto slot = Held("volumes/a", {});
  ASSERT_THAT(tiers_.BeginSpill("volumes/a"), IsOk());
  tiers_.EndSpill("volumes/a", absl::ResourceExhaustedError("no room"));
  EXPECT_FALSE(slot.expired());
  EXPECT_EQ(Get("volumes/a").last_error, "no room");
  EXPECT_EQ(Get("volumes/a").moving, Move::kNone);
  EXPECT_TRUE(told_.empty());
}

TEST_F(VolumeTiersTest, WhatWasMadeForAVolumeThatHasLeftIsRemoved) {
  Held("volumes/a", {});
  ASSERT_THAT(tiers_.BeginSpill("volumes/a"), IsOk());
  {
    MutexLock lock(table_.mutex());
    (void)table_.Leave(**table_.Find("volumes/a"), VolumeState::kDiscarded, "", "discarded");
  }
  tiers_.EndSpill("volumes/a", Spilled());
  EXPECT_EQ(removed_, 1);
  EXPECT_EQ(Get("volumes/a").tier, Tier::kDevice);
}

}  // namespace
}  // namespace octavo::engine
