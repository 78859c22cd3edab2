#include "server/engine/block_ring.h"

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/allocation_counter.h"
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
  for (int i = 0; i < 3; ++i) ring.Publish(slots[static_cast<size_t>(i)], {.first_record = 10 * i, .records = 10});
  EXPECT_EQ(ring.TryAcquire(), -1) << "published is not free";
  for (int i = 0; i < 3; ++i) {
    int slot = -1;
    SourceBlock block;
    ASSERT_TRUE(ring.Pop(&slot, &block, stop.get_token()));
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
  int slot = -1;
  SourceBlock block;
  EXPECT_TRUE(ring.Pop(&slot, &block, stop.get_token()));
  EXPECT_FALSE(ring.Pop(&slot, &block, stop.get_token()));
  EXPECT_THAT(ring.close_status(), IsError(absl::StatusCode::kDataLoss, "cable"));
}

TEST(BlockRingTest, CloseWakesAWaitingConsumer) {
  for (int i = 0; i < 200; ++i) {
    BlockRing ring(2);
    std::jthread consumer([&](std::stop_token stop) {
      int slot = -1;
      SourceBlock block;
      EXPECT_FALSE(ring.Pop(&slot, &block, stop));
    });
    ring.Close(absl::OkStatus());
    consumer.join();
    EXPECT_THAT(ring.close_status(), IsOk());
  }
}

// Whether the other thread waits already when the stop comes varies from round to round; it must come back either way.
TEST(BlockRingTest, StopWakesBothWaits) {
  for (int i = 0; i < 200; ++i) {
    BlockRing ring(1);
    ASSERT_EQ(ring.TryAcquire(), 0);
    std::stop_source stop;
    std::thread producer([&] { EXPECT_EQ(ring.Acquire(stop.get_token()), -1); });
    std::thread consumer([&] {
      int slot = -1;
      SourceBlock block;
      EXPECT_FALSE(ring.Pop(&slot, &block, stop.get_token()));
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
  std::vector<int64_t> memory(kSlots, -1);      // what the producer wrote: unsynchronised but for the ring
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
    int slot = -1;
    SourceBlock block;
    int64_t expected = 0;
    while (ring.Pop(&slot, &block, stop.get_token())) {
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

TEST(BlockRingTest, AllocatesNothingOnceItExists) {
  if (!testing::kCountsAllocations) GTEST_SKIP() << "a sanitizer has operator new";
  BlockRing ring(8);
  std::stop_source stop;
  const int64_t before = testing::AllocationsOfThisThread();
  for (int64_t i = 0; i < 1000; ++i) {
    const int taken = ring.Acquire(stop.get_token());
    ring.Publish(taken, {.first_record = i, .records = 1});
    int slot = -1;
    SourceBlock block;
    if (i % 5 == 4) {
      for (int n = 0; n < 5; ++n) {
        ring.Pop(&slot, &block, stop.get_token());
        ring.Release(slot);
      }
    }
  }
  EXPECT_EQ(testing::AllocationsOfThisThread(), before);
  const auto one = std::make_unique<int>(1);
  EXPECT_GT(testing::AllocationsOfThisThread(), before) << "the counter does not count";
}

}  // namespace
}  // namespace octavo::engine
