#include "server/scan/acquirer.h"

#include <cstring>

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::ScanSurroundings;

constexpr int64_t kSamples = 64, kBlock = 50;

ResolvedScan Counted(int64_t volumes, Overrun overrun = Overrun::kDropBlock, int64_t ring = 4) {
  return ResolvedKnown({.ascans_per_bscan = 25, .bscans_per_volume = 4, .volumes = volumes},
                       [&](ScanSpec& spec) {
                         spec.overrun = overrun;
                         spec.acquisition.ring_blocks = ring;
                       });
}

/// A source that cannot wait and always has records: untaken records are lost.
class Running final : public Source {
 public:
  explicit Running(int64_t total) : total_(total) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token) override {
    std::memset(slot, 1, static_cast<size_t>(max_records * kSamples * 2));
    return Advance(max_records);
  }
  absl::StatusOr<SourceBlock> Skip(int64_t records, std::stop_token) override {
    ++skips;
    return Advance(records);
  }
  bool CanWait() const override { return false; }
  void Want(int64_t records) override { wanted = records; }
  int skips = 0;
  int64_t wanted = -1;

 private:
  SourceBlock Advance(int64_t records) {
    const SourceBlock block{.first_record = next_, .records = std::min(records, total_ - next_)};
    next_ += block.records;
    return block;
  }
  const int64_t total_;
  int64_t next_ = 0;
};

/// Takes all parts of a closed ring. Returns their records as (first, one past the last).
std::vector<std::pair<int64_t, int64_t>> Drain(Acquirer& acquirer) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (BlockRing::Part part; acquirer.ring().Pop(&part, {});) {
    parts.emplace_back(part.block.first_record, part.block.first_record + part.block.records);
    acquirer.Release(part.slot, part.loan);
  }
  return parts;
}

TEST(AcquirerTest, TakesNotOneRecordMoreThanAreWanted) {
  ScanSurroundings of(Counted(1));
  auto owned = std::make_unique<Running>(1000);
  Running& source = *owned;
  Acquirer acquirer(std::move(owned), of.scan, &of.progress);
  ASSERT_THAT(acquirer.Allocate(SharedDevice("host")), IsOk());
  EXPECT_EQ(source.wanted, 100);
  acquirer.Run({}, {});
  EXPECT_TRUE(acquirer.all_acquired());
  EXPECT_THAT(acquirer.ring().close_status(), IsOk());
  const auto parts = Drain(acquirer);
  ASSERT_FALSE(parts.empty());
  EXPECT_EQ(parts.front().first, 0);
  EXPECT_EQ(parts.back().second, 100);
  EXPECT_EQ(of.progress.blocks_dropped, 0);
}

TEST(AcquirerTest, AnOverrunIsCountedAndTheScanGoesOn) {
  ScanSurroundings of(Counted(4, Overrun::kDropBlock, /*ring=*/3));
  auto owned = std::make_unique<Running>(1000);
  Running& source = *owned;
  Acquirer acquirer(std::move(owned), of.scan, &of.progress);
  ASSERT_THAT(acquirer.Allocate(SharedDevice("host")), IsOk());
  acquirer.Run({}, {});  // no thread takes a part: three slots are filled, the rest is lost
  EXPECT_THAT(acquirer.ring().close_status(), IsOk());
  EXPECT_EQ(acquirer.Occupancy(), 1.0);
  int64_t taken = 0;
  for (const auto& [first, end] : Drain(acquirer)) taken += end - first;
  EXPECT_EQ(acquirer.Occupancy(), 0.0);
  EXPECT_GT(source.skips, 0);
  EXPECT_EQ(of.progress.blocks_dropped, source.skips);
  EXPECT_EQ(taken + source.skips * kBlock, 400);
}

TEST(AcquirerTest, AnOverrunEndsAScanThatMustNotLoseAnything) {
  ScanSurroundings of(Counted(4, Overrun::kFailScan, /*ring=*/3));
  Acquirer acquirer(std::make_unique<Running>(1000), of.scan, &of.progress);
  ASSERT_THAT(acquirer.Allocate(SharedDevice("host")), IsOk());
  acquirer.Run({}, {});
  EXPECT_EQ(InfoOf(acquirer.ring().close_status()).reason, Reason::kSourceOverrun);
  EXPECT_FALSE(acquirer.all_acquired());
}

TEST(AcquirerTest, ASourceThatEndsEarlyHasNotBroughtAll) {
  ScanSurroundings of(Counted(2));
  const KnownRecords records(7, kSamples);
  Acquirer acquirer(std::make_unique<KnownSource>(records, 70, nullptr, nullptr), of.scan,
                    &of.progress);
  ASSERT_THAT(acquirer.Allocate(SharedDevice("host")), IsOk());
  acquirer.Run({}, {});
  EXPECT_FALSE(acquirer.all_acquired());
  std::vector<uint16_t> expected(kSamples);
  int64_t seen = 0;
  for (BlockRing::Part part; acquirer.ring().Pop(&part, {});) {
    const auto* data = reinterpret_cast<const uint16_t*>(acquirer.DataOf(part));
    for (int64_t r = 0; r < part.block.records; ++r, ++seen) {
      EXPECT_EQ(part.block.first_record + r, seen);
      records.Write(seen, expected.data());
      EXPECT_EQ(std::memcmp(data + r * kSamples, expected.data(), kSamples * 2), 0) << seen;
    }
  }
  EXPECT_EQ(seen, 70);
}

TEST(AcquirerTest, AnAbortEndsIt) {
  ScanSurroundings of(Counted(4));
  std::stop_source abort;
  Acquirer acquirer(std::make_unique<KnownSource>(KnownRecords(7, kSamples), 400, nullptr,
                                                  [&](int64_t next) {
                                                    if (next > 0) abort.request_stop();
                                                  }),
                    of.scan, &of.progress);
  ASSERT_THAT(acquirer.Allocate(SharedDevice("host")), IsOk());
  acquirer.Run({}, abort.get_token());
  EXPECT_FALSE(acquirer.all_acquired());
}

/// Lends its memory to the uploads.
class Lending final : public Source, public ZeroCopySource {
 public:
  absl::StatusOr<SourceBlock> Next(void*, int64_t, std::stop_token) override {
    return absl::InternalError("this source lends");
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override {
    return absl::InternalError("this source waits");
  }
  bool CanWait() const override { return true; }
  SourceCounts Counts() override { return {.records = 100 * loans, .connected = true}; }
  ZeroCopySource* lender() override { return this; }

  int64_t slots() const override { return 8; }
  absl::Status OpenMemory(Device&) override { return absl::OkStatus(); }
  absl::StatusOr<BorrowedBlock> Lend(std::stop_token) override {
    const int64_t first = 50 * loans++;
    return BorrowedBlock{.block = {.first_record = first, .records = 50},
                         .data = memory + first * kSamples * 2,
                         .loan = loans};
  }
  void Return(int64_t loan) override { returned.push_back(loan); }
  double Occupancy() override { return 0.25; }
  void CloseMemory() override { closed = true; }

  std::vector<int64_t> returned;
  int64_t loans = 0;
  bool closed = false;
  uint8_t memory[100 * kSamples * 2] = {};
};

TEST(AcquirerTest, WhatASourceLendsIsTakenWhereItIsAndReturned) {
  ScanSurroundings of(Counted(1));
  of.scan.spec.source.emplace<RingSource>().slots = 4;
  auto owned = std::make_unique<Lending>();
  Lending& source = *owned;
  Acquirer acquirer(std::move(owned), of.scan, &of.progress);
  ASSERT_THAT(acquirer.Allocate(SharedDevice("host")), IsOk());
  acquirer.Run({}, {});
  EXPECT_TRUE(acquirer.all_acquired());
  EXPECT_EQ(acquirer.Occupancy(), 0.25);
  int64_t records = 0;
  for (BlockRing::Part part; acquirer.ring().Pop(&part, {});) {
    EXPECT_EQ(part.slot, -1);
    EXPECT_EQ(acquirer.DataOf(part), source.memory + part.block.first_record * kSamples * 2);
    records += part.block.records;
    acquirer.Release(part.slot, part.loan);
  }
  EXPECT_EQ(records, 100);
  EXPECT_EQ(source.returned.back(), 2);
  acquirer.FreeMemory();
  EXPECT_TRUE(source.closed);
  EXPECT_TRUE(acquirer.Counts().connected);
  acquirer.LetGo();
  EXPECT_FALSE(acquirer.Counts().connected);
  EXPECT_EQ(acquirer.Counts().records, 200);
  EXPECT_EQ(acquirer.Occupancy(), 0);  // status requests are still allowed
}

}  // namespace
}  // namespace octavo::engine
