#include "server/source/push_records.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/base/status.h"
#include "server/model/resolved_scan.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;

const SystemClock kClock;
// A record holds its number, so that a misplaced one is noticed.
constexpr int64_t kRecordBytes = 4;

// `count` records with the numbers first, first + 1, ... (plus `lie`), in pieces of `piece` bytes.
PushBlock Block(uint64_t first, int64_t count, size_t piece = 7, uint32_t lie = 0) {
  auto numbers = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>(count));
  std::iota(numbers->begin(), numbers->end(), static_cast<uint32_t>(first) + lie);
  PushBlock block{.first_record = first, .records = count};
  const auto* data = reinterpret_cast<const char*>(numbers->data());
  const size_t bytes = numbers->size() * kRecordBytes;
  for (size_t at = 0; at < bytes; at += piece)
    block.parts.emplace_back(data + at, std::min(piece, bytes - at));
  block.owner = std::move(numbers);
  return block;
}

class PushPortTest : public ::testing::Test {
 protected:
  // The next block as (first record, contents).
  std::pair<int64_t, std::vector<uint32_t>> Next(int64_t most = 100) {
    std::vector<uint32_t> slot(static_cast<size_t>(most), 0xDEADBEEF);
    const auto block = port_.Next(reinterpret_cast<char*>(slot.data()), most, stop_.get_token());
    EXPECT_THAT(block, IsOk());
    if (!block.ok()) return {-1, {}};
    for (size_t i = static_cast<size_t>(block->records); i < slot.size(); ++i)
      EXPECT_EQ(slot[i], 0xDEADBEEF) << "wrote beyond its records";
    slot.resize(static_cast<size_t>(block->records));
    return {block->first_record, slot};
  }
  static std::pair<int64_t, std::vector<uint32_t>> Run(int64_t first, int64_t count) {
    std::vector<uint32_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), static_cast<uint32_t>(first));
    return {first, numbers};
  }
  PushProgress Progress(int64_t connection) {
    const auto progress = port_.Progress(connection);
    EXPECT_THAT(progress, IsOk());
    return progress.value_or(PushProgress{});
  }

  PushPort port_{{.record_bytes = kRecordBytes,
                  .block_records = 50,
                  .credit_blocks = 3,
                  .idle_timeout_s = 0.05},
                 &kClock};
  std::stop_source stop_;
};

TEST_F(PushPortTest, BlocksThatFollowOnShareASlotAndSplitOverSlots) {
  const int64_t c = port_.Connect();
  EXPECT_THAT(port_.Offer(c, Block(0, 30)), IsOk());
  EXPECT_THAT(port_.Offer(c, Block(30, 50, 1)), IsOk());
  EXPECT_THAT(port_.Offer(c, Block(80, 10, 1000)), IsOk());
  EXPECT_EQ(Next(64), Run(0, 64));
  EXPECT_EQ(Next(64), Run(64, 26));
  EXPECT_EQ(port_.Counts().records, 90);
}

TEST_F(PushPortTest, CreditIsWhatThereIsRoomForAndNeverTakenBack) {
  const int64_t c = port_.Connect();
  EXPECT_EQ(Progress(c).credit, 3);
  int64_t credit = 0;
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(port_.Offer(c, Block(10 * static_cast<uint64_t>(i), 10)), IsOk());
  EXPECT_EQ(Progress(c).credit, 3);
  const absl::Status status = port_.Offer(c, Block(30, 10));
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "without credit"));
  EXPECT_EQ(InfoOf(status).reason, Reason::kCreditExceeded);
  for (int64_t taken = 0; taken < 30; taken += 5) {
    EXPECT_EQ(Next(5), Run(taken, 5)) << "half a block at a time";
    EXPECT_GE(Progress(c).credit, credit);
    credit = Progress(c).credit;
  }
  EXPECT_EQ(credit, 6);
  EXPECT_EQ(Progress(c).received, 3);
}

TEST_F(PushPortTest, NumbersDecideWhatIsUsed) {
  port_.Want(200);
  const int64_t c = port_.Connect();
  const auto offer = [&](PushBlock block) {
    EXPECT_THAT(port_.Offer(c, std::move(block)), IsOk());
    return port_.Counts();
  };
  offer(Block(0, 20));
  EXPECT_EQ(offer(Block(0, 20, 7, 1000)).duplicate_records, 20);
  EXPECT_EQ(offer(Block(10, 20)).duplicate_records, 30) << "of which ten are new";
  EXPECT_EQ(Next(), Run(0, 30));
  auto counts = offer(Block(35, 5));
  EXPECT_EQ(counts.gaps, 1);
  EXPECT_EQ(counts.lost_records, 5);
  EXPECT_EQ(offer(Block(30, 5, 7, 1000)).duplicate_records, 35) << "too late: given up";
  EXPECT_EQ(port_.Counts().late_records, 5) << "those that came twice were not late";
  EXPECT_EQ(offer(Block(200, 5)).out_of_range_records, 5);
  EXPECT_EQ(offer(Block(~uint64_t{0} - 3, 50)).out_of_range_records, 55);
  EXPECT_EQ(offer(Block(190, 20)).out_of_range_records, 65) << "ten of them";
  EXPECT_EQ(Next(), Run(35, 5)) << "a slot has no gap";
  EXPECT_EQ(Next(), Run(190, 10));
  EXPECT_EQ(Progress(c).next_record, 200);
  EXPECT_EQ(Progress(c).credit, 8 + 3) << "what was not used costs nothing";
}

TEST_F(PushPortTest, RecordsBeyondTheEndAreToldAndCountedAlsoAfterTheScanHasAll) {
  port_.Want(60);
  int told = 0;
  port_.OnDoubt([&](const std::string&) { ++told; });
  const int64_t c = port_.Connect();
  EXPECT_THAT(port_.Offer(c, Block(0, 40)), IsOk());
  EXPECT_EQ(told, 0);
  EXPECT_THAT(port_.Offer(c, Block(40, 30)), IsOk());
  EXPECT_EQ(told, 1);
  EXPECT_EQ(Next(), Run(0, 60));
  port_.Close();
  EXPECT_THAT(port_.Offer(c, Block(70, 50)), IsOk());
  EXPECT_EQ(told, 2);
  EXPECT_EQ(port_.Counts().out_of_range_records, 60);
  port_.OnDoubt(nullptr);
  EXPECT_THAT(port_.Offer(c, Block(120, 10)), IsOk());
  EXPECT_EQ(told, 2);
}

TEST_F(PushPortTest, WithoutATotalAJumpBeyondReasonIsNotFollowed) {
  const int64_t c = port_.Connect();
  EXPECT_THAT(port_.Offer(c, Block(uint64_t{1} << 40, 5)), IsOk());
  EXPECT_EQ(port_.Counts().out_of_range_records, 5);
  EXPECT_EQ(Progress(c).next_record, 0);
  EXPECT_THAT(port_.Offer(c, Block(1'000'000, 5)), IsOk());
  EXPECT_EQ(port_.Counts().lost_records, 1'000'000);
}

TEST_F(PushPortTest, BadBlocksNameTheFieldAndCountForNothing) {
  const int64_t c = port_.Connect();
  const auto field = [&](PushBlock block) {
    const absl::Status status = port_.Offer(c, std::move(block));
    EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument, ""));
    return InfoOf(status).field;
  };
  EXPECT_EQ(field(Block(0, 51)), "records");
  EXPECT_EQ(field({.first_record = 0, .records = 0}), "records");
  EXPECT_EQ(field({.first_record = 0, .records = -1}), "records");
  PushBlock block = Block(0, 10);
  block.records = 11;
  EXPECT_EQ(field(block), "data");
  block.records = 9;
  EXPECT_EQ(field(block), "data");
  block = Block(0, 10);
  block.marks.push_back({.name = std::string(64, 'x'), .record = 0});
  EXPECT_EQ(field(block), "markers.name");
  block.marks.assign(65, {.name = "x", .record = 0});
  EXPECT_EQ(field(block), "markers");
  EXPECT_EQ(Progress(c).received, 0);
  EXPECT_EQ(Progress(c).next_record, 0);
}

TEST_F(PushPortTest, MarkersComeInTheOrderOfTheirRecordsWhicheverBlockBringsThem) {
  std::mt19937 random(::octavo::testing::FreshSeed());
  port_.Want(120);
  const int64_t c = port_.Connect();
  std::vector<int64_t> expected;
  for (uint64_t first = 0; first < 120; first += 40) {
    PushBlock block = Block(first, 40);
    for (int i = 0; i < 20; ++i) {
      const int64_t record = std::uniform_int_distribution<int64_t>(0, 119)(random);
      block.marks.push_back({.name = absl::StrCat("m", record), .record = record});
      expected.push_back(record);
    }
    EXPECT_THAT(port_.Offer(c, std::move(block)), IsOk());
  }
  std::sort(expected.begin(), expected.end());
  std::vector<int64_t> told;
  for (const int64_t before : {17, 17, 63, 120}) {
    for (const auto& mark : port_.TakeMarks(before)) {
      EXPECT_LT(mark.record, before);
      EXPECT_EQ(mark.name, absl::StrCat("m", mark.record));
      told.push_back(mark.record);
    }
  }
  EXPECT_EQ(told, expected);
  EXPECT_EQ(port_.Counts().ignored_markers, 0);
}

TEST_F(PushPortTest, AMarkerBeyondTheScanIsRefusedOrCounted) {
  const int64_t c = port_.Connect();
  const auto offer = [&](PushBlock block, int64_t record) {
    block.marks = {{.name = "flash", .record = record}};
    return port_.Offer(c, std::move(block));
  };
  EXPECT_THAT(offer(Block(0, 20), std::numeric_limits<int64_t>::max()),
              IsError(absl::StatusCode::kInvalidArgument, "is 9223372036854775807"))
      << "no scan is so long, not even a continuous one";
  port_.Want(100);
  for (const int64_t record : {int64_t{100}, int64_t{101}, int64_t{1} << 40, int64_t{-1}}) {
    const absl::Status status = offer(Block(0, 20), record);
    EXPECT_THAT(status, IsError(absl::StatusCode::kInvalidArgument,
                                absl::StrCat("is ", record, " (marker 'flash'); allowed 0 to 99")));
    EXPECT_EQ(InfoOf(status).field, "markers.record");
  }
  EXPECT_EQ(Progress(c).received, 0) << "the block is not taken";
  EXPECT_THAT(offer(Block(0, 20), 10), IsOk());
  EXPECT_THAT(offer(Block(0, 20), 10), IsOk());
  EXPECT_EQ(port_.Counts().ignored_markers, 1) << "it came again with its block";
  EXPECT_THAT(offer(Block(0, 20), 99), IsOk());
  EXPECT_EQ(port_.Counts().ignored_markers, 1) << "a record that is still to come";
  EXPECT_THAT(offer(Block(100, 20), 110), IsOk());
  EXPECT_THAT(offer(Block(90, 20), 105), IsOk());
  EXPECT_EQ(port_.Counts().ignored_markers, 3) << "surplus, as their records";
  EXPECT_EQ(port_.TakeMarks(90).size(), 1u);
  port_.Close();
  EXPECT_EQ(port_.Counts().ignored_markers, 4) << "its record never came";
}

TEST_F(PushPortTest, MarkersComeWithoutRecordsAndWithoutCredit) {
  port_.Want(100);
  const int64_t c = port_.Connect();
  EXPECT_THAT(port_.Mark(c, {{.name = "ahead", .record = 30}, {.name = "first", .record = 0}}),
              IsOk());
  for (uint64_t first = 0; first < 60; first += 20)
    EXPECT_THAT(port_.Offer(c, Block(first, 20)), IsOk());
  const PushProgress full = Progress(c);
  EXPECT_EQ(full.credit, full.received) << "no block may come";
  EXPECT_THAT(port_.Mark(c, {{.name = "last", .record = 99}}), IsOk());
  EXPECT_EQ(Progress(c).received, full.received);
  const auto taken = port_.TakeMarks(100);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].name, "first");
  EXPECT_EQ(taken[1].name, "ahead");
  EXPECT_EQ(taken[2].name, "last");
  for (const SourceMark& wrong :
       {SourceMark{.name = "beyond", .record = 100}, SourceMark{.name = "", .record = 1}}) {
    EXPECT_THAT(port_.Mark(c, {{.name = "good", .record = 5}, wrong}),
                IsError(absl::StatusCode::kInvalidArgument, "markers."));
  }
  EXPECT_EQ(port_.TakeMarks(100).size(), 0u) << "all of a message or none";
  const int64_t newer = port_.Connect();
  EXPECT_EQ(InfoOf(port_.Mark(c, {{.name = "late", .record = 70}})).reason, Reason::kReplaced);
  EXPECT_THAT(port_.Mark(newer, {{.name = "never", .record = 70}}), IsOk());
  port_.Close();
  EXPECT_THAT(port_.Mark(newer, {{.name = "late", .record = 70}}), IsOk());
  EXPECT_EQ(port_.Counts().ignored_markers, 2) << "their records never came";
}

TEST_F(PushPortTest, MarkersThatWaitAreBounded) {
  port_.Want(1'000'000);
  const int64_t c = port_.Connect();
  const auto offer = [&] {
    PushBlock block = Block(0, 1);
    block.marks.assign(64, {.name = "far", .record = 999'999});
    return port_.Offer(c, std::move(block));
  };
  for (int i = 0; i < 64; ++i) ASSERT_THAT(offer(), IsOk());
  const absl::Status status = offer();
  EXPECT_THAT(status, IsError(absl::StatusCode::kResourceExhausted, "4096 markers wait"));
  EXPECT_EQ(InfoOf(status).reason, Reason::kMarkersWaiting);
  EXPECT_EQ(port_.TakeMarks(1'000'000).size(), 4096u) << "none of those that were taken is lost";
  EXPECT_THAT(offer(), IsOk());
}

TEST_F(PushPortTest, ANewConnectionTakesOverAndIsToldWhereToGoOn) {
  const int64_t old = port_.Connect();
  int old_news = 0;
  port_.OnProgress(old, [&] { ++old_news; });
  EXPECT_THAT(port_.Offer(old, Block(0, 20)), IsOk());
  EXPECT_EQ(old_news, 1);
  const int64_t now = port_.Connect();
  EXPECT_EQ(old_news, 2) << "it learns that it was replaced";
  EXPECT_EQ(InfoOf(port_.Progress(old).status()).reason, Reason::kReplaced);
  EXPECT_THAT(port_.Offer(old, Block(20, 20)),
              IsError(absl::StatusCode::kAborted, "another connection"));
  EXPECT_THAT(port_.EndOfRecords(old), IsError(absl::StatusCode::kAborted, "another connection"));
  EXPECT_EQ(Progress(now).next_record, 20);
  EXPECT_EQ(Progress(now).credit, 2) << "a block still waits";
  port_.Disconnect(old);
  EXPECT_TRUE(port_.Counts().connected);
  EXPECT_THAT(port_.Offer(now, Block(20, 5)), IsOk());
  EXPECT_EQ(old_news, 2);
  port_.Disconnect(now);
  EXPECT_FALSE(port_.Counts().connected);
  EXPECT_EQ(Next(), Run(0, 25)) << "what was accepted outlives its connection";
}

TEST_F(PushPortTest, SilenceIsAStall) {
  std::vector<char> slot(4);
  const absl::Status status = port_.Next(slot.data(), 1, stop_.get_token()).status();
  EXPECT_THAT(status, IsError(absl::StatusCode::kDeadlineExceeded, "no client ever connected"));
  EXPECT_EQ(InfoOf(status).reason, Reason::kSourceStalled);
}

TEST_F(PushPortTest, TheEndComesAfterWhatWasSent) {
  const int64_t c = port_.Connect();
  EXPECT_THAT(port_.Offer(c, Block(0, 20)), IsOk());
  EXPECT_THAT(port_.EndOfRecords(c), IsOk());
  EXPECT_EQ(Next(), Run(0, 20));
  EXPECT_EQ(Next().second.size(), 0u);
  EXPECT_THAT(port_.Offer(c, Block(20, 20)), IsOk());
  EXPECT_EQ(port_.Counts().out_of_range_records, 20);
  EXPECT_FALSE(Progress(c).done);
  port_.Close();
  EXPECT_TRUE(Progress(c).done);
}

TEST_F(PushPortTest, AStopEndsTheWait) {
  PushPort patient(
      {.record_bytes = 4, .block_records = 1, .credit_blocks = 1, .idle_timeout_s = -1}, &kClock);
  std::vector<char> slot(4);
  std::jthread stopper([&] { stop_.request_stop(); });
  const auto block = patient.Next(slot.data(), 1, stop_.get_token());
  EXPECT_THAT(block, IsOk());
  EXPECT_EQ(block->records, 0);
}

TEST_F(PushPortTest, MarksComeWithTheirRecords) {
  const int64_t c = port_.Connect();
  PushBlock block = Block(0, 20);
  block.marks = {{.name = "a", .record = 3}, {.name = "b", .record = 19}};
  EXPECT_THAT(port_.Offer(c, block), IsOk());
  EXPECT_THAT(port_.Offer(c, block), IsOk()) << "again";
  EXPECT_EQ(port_.TakeMarks(3).size(), 0u);
  EXPECT_EQ(port_.TakeMarks(4).at(0).name, "a");
  EXPECT_EQ(port_.TakeMarks(100).at(0).name, "b");
  EXPECT_EQ(port_.TakeMarks(100).size(), 0u) << "a block that was seen before marks nothing";
}

TEST_F(PushPortTest, MemoryIsGivenBackAsBlocksAreUsed) {
  const int64_t c = port_.Connect();
  std::vector<std::weak_ptr<const void>> owners;
  for (uint64_t i = 0; i < 3; ++i) {
    PushBlock block = Block(10 * i, 10);
    owners.emplace_back(block.owner);
    EXPECT_THAT(port_.Offer(c, std::move(block)), IsOk());
  }
  Next(10);
  EXPECT_TRUE(owners[0].expired());
  EXPECT_FALSE(owners[1].expired());
  port_.Close();
  EXPECT_TRUE(owners[1].expired() && owners[2].expired());
}

TEST(PushPortThreads, AClientAndASourceOverManyBlocks) {
  constexpr int64_t kTotal = 200'000;
  PushPort port({.record_bytes = 4, .block_records = 64, .credit_blocks = 4, .idle_timeout_s = 20},
                &kClock);
  port.Want(kTotal);
  const int64_t c = port.Connect();
  Mutex mutex;
  CondVar cv;
  bool news = true;
  port.OnProgress(c, [&] {
    MutexLock lock(mutex);
    news = true;
    cv.NotifyAll();
  });
  std::jthread client([&] {
    int64_t sent = 0, first = 0;
    while (first < kTotal) {
      {
        MutexLock lock(mutex);
        while (!news) cv.Wait(lock);
        news = false;
      }
      for (int64_t credit = port.Progress(c)->credit; sent < credit && first < kTotal; ++sent) {
        const int64_t count = std::min<int64_t>(1 + (sent * 37) % 64, kTotal - first);
        EXPECT_THAT(port.Offer(c, Block(static_cast<uint64_t>(first), count, 64)), IsOk());
        first += count;
      }
    }
  });
  std::stop_source stop;
  std::vector<uint32_t> slot(100);
  for (int64_t next = 0; next < kTotal;) {
    const auto block = port.Next(reinterpret_cast<char*>(slot.data()),
                                 std::min<int64_t>(100, kTotal - next), stop.get_token());
    ASSERT_THAT(block, IsOk());
    ASSERT_EQ(block->first_record, next);
    for (int64_t i = 0; i < block->records; ++i) ASSERT_EQ(slot[static_cast<size_t>(i)], next + i);
    next += block->records;
  }
  EXPECT_EQ(port.Counts().records, kTotal);
}

}  // namespace
}  // namespace octavo::engine
