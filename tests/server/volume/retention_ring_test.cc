#include "server/volume/retention_ring.h"

#include "tests/server/volume/table_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class RetentionRingTest : public TableFixture {
 protected:
  RetentionRing ring_{table_};
};

TEST_F(RetentionRingTest, TheOldestOfTheScanThatNothingKeepsIsOverwritten) {
  Held("volumes/other", {.scan = "scans/b", .of_ring = true});
  const auto kept = Held("volumes/1", {});
  const auto moving = Held("volumes/2", {.of_ring = true});
  const auto oldest = Held("volumes/3", {.of_ring = true});
  With("volumes/2", [](VolumeEntry& entry) { entry.moving = Move::kSpilling; });
  EXPECT_TRUE(ring_.OverwriteOldest("scans/a"));
  EXPECT_TRUE(oldest.expired());
  EXPECT_FALSE(kept.expired());
  EXPECT_FALSE(moving.expired());
  EXPECT_FALSE(ring_.OverwriteOldest("scans/a"));
  EXPECT_EQ(Get("volumes/3").reason, "overwritten by a newer volume of a LIVE scan");
  EXPECT_EQ(
      told_,
      (std::vector<std::pair<std::string, VolumeState>>{{"volumes/3", VolumeState::kDiscarded}}));
}

TEST_F(RetentionRingTest, AMarkTakesAHoldSlotUntilItIsTakenBack) {
  Held("volumes/a", {.of_ring = true});
  Held("volumes/b", {.of_ring = true});
  EXPECT_TRUE(ring_.Mark("volumes/a", 1)->marked);
  EXPECT_THAT(ring_.Mark("volumes/b", 1),
              IsError(absl::StatusCode::kResourceExhausted, "all of its 1 hold slots"));
  EXPECT_FALSE(ring_.Unmark("volumes/a")->kept);
  EXPECT_THAT(ring_.Mark("volumes/b", 1), IsOk());
  // A volume without a ring stays kept without its mark.
  Held("volumes/c", {});
  EXPECT_THAT(ring_.Mark("volumes/c", 1), IsOk());
  EXPECT_TRUE(ring_.Unmark("volumes/c")->kept);
}

TEST_F(RetentionRingTest, ALoanLeavesWhatElseKeepsTheVolume) {
  struct Case {
    const char* why;
    void (*change)(VolumeEntry& entry);
    bool kept;
  };
  const Case cases[] = {
      {"nothing", [](VolumeEntry&) {}, false},
      {"a mark", [](VolumeEntry& entry) { entry.marked = true; }, true},
      {"a commit that failed", [](VolumeEntry& entry) { entry.last_error = "disk full"; }, true},
      {"another tier", [](VolumeEntry& entry) { entry.tier = Tier::kHost; }, true},
  };
  for (const Case& c : cases) {
    const std::string name = std::string("volumes/") + c.why;
    Held(name, {.of_ring = true});
    {
      ASSERT_OK_AND_ASSIGN(const VolumeHold loan, ring_.Lend(name, 100));
      EXPECT_TRUE(Get(name).kept);
      With(name, c.change);
    }
    EXPECT_EQ(Get(name).kept, c.kept) << c.why;
  }
}

TEST_F(RetentionRingTest, WhatIsNotHeldIsNotLent) {
  EXPECT_THAT(ring_.Lend("volumes/none", 1), IsError(absl::StatusCode::kNotFound, "no volume"));
  Held("volumes/a", {.of_ring = true});
  With("volumes/a", [](VolumeEntry& entry) { entry.state = VolumeState::kCommitting; });
  EXPECT_THAT(ring_.Lend("volumes/a", 1),
              IsError(absl::StatusCode::kFailedPrecondition, "only HELD volumes can be lent"));
  EXPECT_FALSE(Get("volumes/a").kept);
}

TEST_F(RetentionRingTest, AScanThatHasEndedOverwritesNothing) {
  Held("volumes/a", {.of_ring = true});
  ring_.KeepAll("scans/a");
  EXPECT_FALSE(ring_.OverwriteOldest("scans/a"));
  EXPECT_TRUE(ring_.Unmark("volumes/a")->kept);
}

}  // namespace
}  // namespace octavo::engine
