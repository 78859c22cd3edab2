#include "server/processing/record_choice.h"

#include <memory>

#include "gtest/gtest.h"

#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"

namespace octavo::engine {
namespace {

using processing::RecordChoice;
using processing::RecordUnit;
using testing::ResolvedKnown;

// Lines of 10 records and 2 of flyback, 4 of them: volumes of 48 records.
RecordChoice Choice(const std::function<void(ScanSpec&)>& change = nullptr) {
  return RecordChoice(std::make_shared<const ResolvedScan>(ResolvedKnown(
      {.ascans_per_bscan = 10, .bscans_per_volume = 4, .volumes = 3, .flyback_records = 2},
      change)));
}

void Rolling(ScanSpec& spec, int64_t group, int64_t window) {
  spec.processing.background = BackgroundMode::kRolling;
  spec.processing.background_group_records = group;
  spec.processing.background_window_records = window;
}

TEST(RecordChoiceTest, TheNewestRecordIsNoFlyback) {
  const RecordChoice choice = Choice();
  EXPECT_TRUE(choice.alone());
  EXPECT_EQ(choice.MostNeeded(), 1);
  const auto newest = choice.Newest(0, 12, -1);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->record, 9);
  EXPECT_EQ(newest->needed(), 1);
  EXPECT_FALSE(choice.Newest(10, 12, -1).has_value());
  const auto column = choice.Newest(0, 100, 3);
  ASSERT_TRUE(column.has_value());
  EXPECT_EQ(column->record, 2 * 48 + 3);
  EXPECT_EQ(column->volume, 2);
  EXPECT_EQ(column->ascan, 3);
}

TEST(RecordChoiceTest, ABackgroundOfTheBscanNeedsTheBscan) {
  const RecordChoice choice =
      Choice([](ScanSpec& spec) { spec.processing.background = BackgroundMode::kBscan; });
  EXPECT_FALSE(choice.alone());
  const auto unit = choice.Next(1, 4);  // the first B-scan has begun
  ASSERT_TRUE(unit.has_value());
  EXPECT_EQ(unit->need_first, 12);
  EXPECT_EQ(unit->need_end, 22);
  EXPECT_EQ(unit->record, 16);
  EXPECT_EQ(choice.BackgroundOf(unit->record), std::pair(int64_t{12}, int64_t{22}));
  const auto next = choice.Next(37, -1);  // the last one of the volume has begun, too
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->volume, 1);
  EXPECT_EQ(next->need_first, 48);
  EXPECT_EQ(next->record, 57);
}

TEST(RecordChoiceTest, ARollingBackgroundNeedsItsWindow) {
  const RecordChoice choice = Choice([](ScanSpec& spec) { Rolling(spec, 20, 50); });
  const auto first = choice.Next(0, -1);  // nothing came before the first record
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->need_first, 0);
  EXPECT_EQ(first->need_end, 20);
  const auto later = choice.Next(1, -1);
  ASSERT_TRUE(later.has_value());
  // Groups end at 20, 40, 48 (the volume), 68: the first window with nothing before record 1.
  EXPECT_EQ(later->need_end, 68);
  EXPECT_EQ(later->need_first, 18);
  EXPECT_EQ(later->volume, 1);
  EXPECT_EQ(later->record, 67);  // 19 of its volume: line 1, column 7
  EXPECT_EQ(later->ascan, 17);
  EXPECT_LE(later->needed(), choice.MostNeeded());
}

}  // namespace
}  // namespace octavo::engine
