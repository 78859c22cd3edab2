#include "server/scan/block_shares.h"

#include "tests/support/scan/session_fixture.h"

namespace octavo::engine {
namespace {

using testing::ResolvedKnown;
using Runs = std::vector<RowsHome::Run>;

// 8 B-scans of 6 A-scans and 2 records of flyback; blocks of 32 records, so that each of two lanes
// takes two neighbouring B-scans at a time.
ResolvedScan Raster(const std::function<void(ResolvedScan&)>& change = nullptr) {
  ResolvedScan scan = ResolvedKnown(
      {.ascans_per_bscan = 6, .bscans_per_volume = 8, .volumes = 2, .flyback_records = 2});
  scan.chain.max_records_per_block = 32;
  if (change) change(scan);
  return scan;
}

struct Told {
  size_t lane;
  int64_t offset, count, raw_offset;
  bool borrowed;
  bool operator==(const Told&) const = default;
};
std::vector<Told> SharesOf(BlockShares& shares, const SourceBlock& block) {
  shares.Cut(block);
  std::vector<Told> told;
  for (const BlockShares::Share& s : shares.shares())
    told.push_back({s.lane, s.offset, s.count, s.raw_offset, s.borrowed});
  return told;
}

TEST(BlockSharesTest, OneLaneTakesEveryBlockWhole) {
  const ResolvedScan scan = Raster();
  BlockShares shares(scan, 1);
  EXPECT_EQ(SharesOf(shares, {.first_record = 5, .records = 32}),
            (std::vector<Told>{{0, 0, 32, 0, false}}));
  // Shares include records without a place, which a later step drops.
  EXPECT_EQ(SharesOf(shares, {.first_record = -4, .records = 10}),
            (std::vector<Told>{{0, 0, 10, 0, false}}));
  EXPECT_EQ(shares.RecordsOf(0), 10);
}

TEST(BlockSharesTest, NeighbouringBscansGoToOneLaneInOnePiece) {
  const ResolvedScan scan = Raster();
  BlockShares shares(scan, 2);
  EXPECT_EQ(SharesOf(shares, {.first_record = 0, .records = 32}),
            (std::vector<Told>{{0, 0, 16, 0, false}, {1, 16, 16, 0, false}}));
  // From the middle of a B-scan to beyond the end of the volume (record 64).
  EXPECT_EQ(SharesOf(shares, {.first_record = 44, .records = 32}),
            (std::vector<Told>{{0, 0, 4, 0, false}, {1, 4, 16, 0, false}, {0, 20, 12, 4, false}}));
  EXPECT_EQ(shares.RecordsOf(0), 16);
  EXPECT_EQ(shares.RecordsOf(1), 16);
  // Records before the scan belong to no lane.
  EXPECT_EQ(SharesOf(shares, {.first_record = -3, .records = 5}),
            (std::vector<Told>{{0, 3, 2, 0, false}}));
}

TEST(BlockSharesTest, AGroupOfARollingBackgroundGoesToAllThatHaveBscansOfIt) {
  const ResolvedScan scan = Raster([](ResolvedScan& of) {
    of.chain.background = math::Background::kRolling;
    of.chain.background_group_records = 32;
    of.chain.volume_records = 64;
  });
  BlockShares shares(scan, 2);
  EXPECT_EQ(SharesOf(shares, {.first_record = 0, .records = 32}),
            (std::vector<Told>{{0, 0, 8, 0, false},
                               {1, 0, 8, 0, true},
                               {0, 8, 8, 8, false},
                               {1, 8, 8, 8, true},
                               {0, 16, 8, 16, true},
                               {1, 16, 8, 16, false},
                               {0, 24, 8, 24, true},
                               {1, 24, 8, 24, false}}));
  EXPECT_EQ(shares.RecordsOf(0), 32);
  EXPECT_EQ(shares.RecordsOf(1), 32);
}

TEST(BlockSharesTest, TheLastBscanEndsWithItsVolume) {
  const ResolvedScan scan = Raster();
  BlockShares shares(scan, 2);
  EXPECT_EQ(shares.PlaceAt(0, 17).row, 2);
  EXPECT_EQ(shares.PlaceAt(0, 17).end, 24);
  EXPECT_EQ(shares.PlaceAt(0, 63).row, 7);
  EXPECT_EQ(shares.PlaceAt(0, 63).end, 64);
  EXPECT_EQ(shares.LaneOfRow(1), 0u);
  EXPECT_EQ(shares.LaneOfRow(2), 1u);
  EXPECT_EQ(shares.LaneOfRow(4), 0u);
}

TEST(RowsHomeTest, ARowIsWholeWhenAllIsMadeOfIt) {
  const ResolvedScan scan = Raster();
  const BlockShares shares(scan, 2);
  RowsHome rows;
  rows.Note(shares, 0, 0, 12, /*made=*/12, /*last_waits=*/false);
  EXPECT_EQ(rows.whole(), (Runs{{0, 1}}));  // the end of row 1 is missing
  rows.Note(shares, 0, 12, 16, /*made=*/10, false);
  EXPECT_EQ(rows.whole(), (Runs{{0, 1}}));  // the processor still holds part of it
  rows.Note(shares, 0, 32, 40, /*made=*/40, false);
  EXPECT_EQ(rows.whole(), (Runs{{0, 2}, {4, 1}}));
  rows.Sent();
  EXPECT_TRUE(rows.whole().empty());
}

TEST(RowsHomeTest, TheLastRowWaitsUntilItsEndShows) {
  const ResolvedScan scan = Raster();
  const BlockShares shares(scan, 2);
  RowsHome rows;
  rows.Note(shares, 0, 0, 16, 16, /*last_waits=*/true);
  EXPECT_EQ(rows.whole(), (Runs{{0, 1}}));
  rows.Finish(/*again=*/false);
  EXPECT_EQ(rows.whole(), (Runs{{0, 2}}));
  rows.Clear();
  EXPECT_TRUE(rows.whole().empty());
}

TEST(RowsHomeTest, RowsThatCameAgainAreSentOnce) {
  const ResolvedScan scan = Raster();
  const BlockShares shares(scan, 2);
  RowsHome rows;
  rows.Note(shares, 0, 32, 48, 48, false);
  rows.Note(shares, 0, 0, 16, 48, false);
  rows.Note(shares, 0, 8, 16, 48, false);
  rows.Note(shares, 0, 32, 40, 48, false);
  rows.Finish(/*again=*/true);
  EXPECT_EQ(rows.whole(), (Runs{{0, 2}, {4, 2}}));
}

}  // namespace
}  // namespace octavo::engine
