#include "server/scan/block_ring.h"

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/allocation_counter.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsError;
using ::octavo::testing::IsOk;

TEST(BlockRingTest, SlotsGoRoundAndOccupancyFollows) {
  BlockRing ring(3);
  std::stop_source stop;
  EXPECT_EQ(ring.Occupancy(), 0);
  std::vector<int> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(ring.TryAcquire());
  EXPECT_EQ(std::set<int>(slots.begin(), slots.end()), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(ring.TryAcquire(), -1) << "all are taken";
  EXPECT_EQ(ring.Occupancy(), 1);
  for (int i = 0; i < 3; ++i)
    ring.Publish(slots[static_cast<size_t>(i)], {.first_record = 10 * i, .records = 10});
  EXPECT_EQ(ring.TryAcquire(), -1) << "published is not free";
  for (int i = 0; i < 3; ++i) {
    BlockRing::Part part;
    ASSERT_TRUE(ring.Pop(&part, stop.get_token()));
    const int slot = part.slot;
    const SourceBlock& block = part.block;
    EXPECT_EQ(slot, slots[static_cast<size_t>(i)]);
    EXPECT_EQ(block.first_record, 10 * i);
    EXPECT_EQ(ring.TryAcquire(), -1) << "popped is not free: the device still reads it";
    ring.Release(slot);
    EXPECT_EQ(ring.Acquire(stop.get_token()), slot);
  }
}

TEST(BlockRingTest, CloseLetsTheRestOutThenEndsWithItsStatus) {
  BlockRing ring(2);
  std::stop_source stop;
  ring.Publish(ring.TryAcquire(), {.first_record = 0, .records = 4});
  ring.Close(absl::DataLossError("cable"));
  BlockRing::Part part;
  EXPECT_TRUE(ring.Pop(&part, stop.get_token()));
  EXPECT_FALSE(ring.Pop(&part, stop.get_token()));
  EXPECT_THAT(ring.close_status(), IsError(absl::StatusCode::kDataLoss, "cable"));
}

TEST(BlockRingTest, CloseWakesAWaitingConsumer) {
  for (int i = 0; i < 200; ++i) {
    BlockRing ring(2);
    std::jthread consumer([&](std::stop_token stop) {
      BlockRing::Part part;
      EXPECT_FALSE(ring.Pop(&part, stop));
    });
    ring.Close(absl::OkStatus());
    consumer.join();
    EXPECT_THAT(ring.close_status(), IsOk());
  }
}

// The other thread may or may not already wait when the stop comes; it must return in both cases.
TEST(BlockRingTest, StopWakesBothWaits) {
  for (int i = 0; i < 200; ++i) {
    BlockRing ring(1);
    ASSERT_EQ(ring.TryAcquire(), 0);
    std::stop_source stop;
    std::thread producer([&] { EXPECT_EQ(ring.Acquire(stop.get_token()), -1); });
    std::thread consumer([&] {
      BlockRing::Part part;
      EXPECT_FALSE(ring.Pop(&part, stop.get_token()));
    });
    stop.request_stop();
    producer.join();
    consumer.join();
    EXPECT_EQ(ring.TryAcquire(), -1) << "a stopped wait takes nothing";
  }
}

TEST(BlockRingTest, ThreeThreadsKeepOrderAndNeverShareASlot) {
  constexpr int64_t kBlocks = 20000;
  constexpr int kSlots = 4;
  BlockRing ring(kSlots);
  std::vector<int64_t> memory(kSlots,
                              -1);  // written by the producer: synchronised only by the ring
  std::vector<std::atomic<int>> owner(kSlots);  // 0 free, 1 taken
  std::vector<int> retiring(kSlots);
  std::atomic<int64_t> popped{0}, retired{0};
  std::stop_source stop;
  std::thread producer([&] {
    for (int64_t i = 0; i < kBlocks; ++i) {
      const int slot = ring.Acquire(stop.get_token());
      ASSERT_GE(slot, 0);
      ASSERT_EQ(owner[static_cast<size_t>(slot)].exchange(1), 0) << "slot given out twice";
      memory[static_cast<size_t>(slot)] = i;
      ring.Publish(slot, {.first_record = i, .records = 1});
    }
    ring.Close(absl::OkStatus());
  });
  std::thread consumer([&] {
    BlockRing::Part part;
    int64_t expected = 0;
    while (ring.Pop(&part, stop.get_token())) {
      const int slot = part.slot;
      const SourceBlock& block = part.block;
      ASSERT_EQ(block.first_record, expected);
      ASSERT_EQ(memory[static_cast<size_t>(slot)], expected);
      while (popped.load() - retired.load() == kSlots) std::this_thread::yield();
      retiring[static_cast<size_t>(expected % kSlots)] = slot;
      popped.store(++expected);
    }
    EXPECT_EQ(expected, kBlocks);
  });
  std::thread retire([&] {
    for (int64_t i = 0; i < kBlocks; ++i) {
      while (popped.load() <= i) std::this_thread::yield();
      const int slot = retiring[static_cast<size_t>(i % kSlots)];
      owner[static_cast<size_t>(slot)].store(0);
      retired.store(i + 1);
      ring.Release(slot);
    }
  });
  producer.join();
  consumer.join();
  retire.join();
  EXPECT_EQ(ring.Occupancy(), 0);
}

// Small parts of a slot join while the device has two others to process, and only then.
TEST(BlockRingTest, SmallPartsAreGatheredWhileTheDeviceIsBusy) {
  BlockRing ring(4, {.enough_records = 100, .patience = std::chrono::hours(1)});
  std::stop_source stop;
  BlockRing::Part part;
  const int slot = ring.TryAcquire();
  for (int64_t i = 0; i < 2; ++i) {  // the device is idle: each part goes at once
    ring.PublishPart(slot, 10 * i, {.first_record = 10 * i, .records = 10});
    ASSERT_TRUE(ring.Pop(&part, stop.get_token()));
    EXPECT_EQ(part.slot, slot);
    EXPECT_EQ(part.offset, 10 * i);
    EXPECT_EQ(part.block.records, 10);
  }
  std::thread producer([&] {
    for (int64_t i = 2; i < 12; ++i)
      ring.PublishPart(slot, 10 * i, {.first_record = 10 * i, .records = 10});
  });
  ASSERT_TRUE(ring.Pop(&part, stop.get_token()));  // returns when there is enough
  producer.join();
  EXPECT_EQ(part.offset, 20);
  EXPECT_EQ(part.block.first_record, 20);
  EXPECT_EQ(part.block.records, 100);
  ring.PublishPart(slot, 120, {.first_record = 120, .records = 10});
  ring.PublishPart(slot, 130, {.first_record = 999, .records = 10});  // records were lost before it
  ASSERT_TRUE(ring.Pop(&part, stop.get_token()));
  EXPECT_EQ(part.block.first_record, 120);
  EXPECT_EQ(part.block.records, 10) << "what does not follow on does not join";
  std::thread sealer([&] { ring.Seal(slot); });
  ASSERT_TRUE(ring.Pop(&part, stop.get_token()));  // no more records will arrive
  sealer.join();
  EXPECT_EQ(part.block.first_record, 999);
  EXPECT_EQ(part.offset, 130);
  for (int i = 0; i < 4; ++i) {
    ring.Release(slot);
    EXPECT_GT(ring.Occupancy(), 0) << "parts of the slot are still with the device";
  }
  ring.Release(slot);
  EXPECT_EQ(ring.Occupancy(), 0);
}

TEST(BlockRingTest, APartWaitsNoLongerThanPatienceAndNotAtAllForAnIdleDevice) {
  BlockRing ring(4, {.enough_records = 100, .patience = std::chrono::milliseconds(50)});
  std::stop_source stop;
  BlockRing::Part part;
  const int slot = ring.TryAcquire();
  for (int64_t i = 0; i < 2; ++i) {
    ring.PublishPart(slot, i, {.first_record = i, .records = 1});
    ASSERT_TRUE(ring.Pop(&part, stop.get_token()));
  }
  const auto begin = std::chrono::steady_clock::now();
  ring.PublishPart(slot, 2, {.first_record = 2, .records = 1});
  ASSERT_TRUE(ring.Pop(&part, stop.get_token()));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
  // The device finishes one of the three parts: two are left, and the next part waits. After
  // another one, it goes at once.
  ring.Release(slot);
  ring.PublishPart(slot, 3, {.first_record = 3, .records = 1});
  std::thread retire([&] { ring.Release(slot); });
  ASSERT_TRUE(ring.Pop(&part, stop.get_token()));
  retire.join();
  EXPECT_EQ(part.block.first_record, 3);
}

TEST(BlockRingTest, AllocatesNothingOnceItExists) {
  if (!testing::kCountsAllocations) GTEST_SKIP() << "a sanitizer has operator new";
  BlockRing ring(8);
  std::stop_source stop;
  const int64_t before = testing::AllocationsOfThisThread();
  for (int64_t i = 0; i < 1000; ++i) {
    const int taken = ring.Acquire(stop.get_token());
    ring.Publish(taken, {.first_record = i, .records = 1});
    BlockRing::Part part;
    if (i % 5 == 4) {
      for (int n = 0; n < 5; ++n) {
        ring.Pop(&part, stop.get_token());
        ring.Release(part.slot);
      }
    }
  }
  EXPECT_EQ(testing::AllocationsOfThisThread(), before);
  const auto one = std::make_unique<int>(1);
  EXPECT_GT(testing::AllocationsOfThisThread(), before) << "the counter does not count";
}

}  // namespace
}  // namespace octavo::engine
