#include "server/derive/missing_ascans.h"

#include "gtest/gtest.h"

#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

TEST(MissingAscansTest, TheOrderOfRepeatsFollowsTheirStrategy) {
  Pattern pattern{.bscans_per_volume = 4,
                  .kind = PatternKind::kRepeatedRaster,
                  .repeat_count = 2,
                  .repeat_period = 2,
                  .repeat_strategy = RepeatStrategy::kPack};
  EXPECT_EQ(RepeatOrder(pattern), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  pattern.repeat_strategy = RepeatStrategy::kOrder;
  EXPECT_EQ(RepeatOrder(pattern), (std::vector<int32_t>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST(MissingAscansTest, AnAscanIsMissingIfOneOfItsRepeatsIs) {
  const Pattern pattern{.bscans_per_volume = 2,
                        .kind = PatternKind::kRepeatedRaster,
                        .repeat_count = 2,
                        .repeat_period = 1,
                        .repeat_strategy = RepeatStrategy::kPack};
  const std::vector<int32_t> order = RepeatOrder(pattern);
  EXPECT_TRUE(MissingOverRepeats(pattern, order, 5, {}).empty());
  // Rows 0 and 1 are B-scan 0: A-scans 3, 4 of the one, 0 of the other; then 1, 2 of B-scan 1.
  EXPECT_EQ(MissingOverRepeats(pattern, order, 5, {{3, 3}, {16, 2}}),
            (AscanRanges{{0, 1}, {3, 2}, {6, 2}}));
}

TEST(MissingAscansTest, APairIsMissingIfOneOfItsAscansIs) {
  // Three A-scans, two pairs in each B-scan.
  EXPECT_EQ(MissingOverAscans(2, 2, {{0, 1}}), (AscanRanges{{0, 1}}));
  EXPECT_EQ(MissingOverAscans(2, 2, {{1, 1}}), (AscanRanges{{0, 2}}));
  EXPECT_EQ(MissingOverAscans(2, 2, {{2, 2}}), (AscanRanges{{1, 2}})) << "no pair across B-scans";
}

TEST(MissingAscansTest, APointOfTheGridIsMissingIfOnlyMissingAscansCoverIt) {
  const Pattern pattern{.ascans_per_bscan = 8,
                        .bscans_per_volume = 8,
                        .extent_x_mm = 2,
                        .extent_y_mm = 2,
                        .kind = PatternKind::kRadial,
                        .radius_begin_mm = -1,
                        .radius_end_mm = 1,
                        .angle_end_deg = 180};
  const CartesianGrid grid{.rows = 6, .columns = 6, .extent_x_mm = 2, .extent_y_mm = 2};
  EXPECT_TRUE(MissingOfGrid(pattern, grid, MakeCartesianTaps(pattern, grid, {})).empty());
  const AscanRanges all = {{0, 64}};
  int64_t covered = 0;
  for (const auto& range : MissingOfGrid(pattern, grid, MakeCartesianTaps(pattern, grid, all)))
    covered += range.second;
  EXPECT_GT(covered, 0);
  EXPECT_LT(covered, 36) << "the corners are not missing: the pattern never covers them";
}

}  // namespace
}  // namespace octavo::engine
