#include "server/scan/completion_queue.h"

#include <atomic>
#include <thread>

#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::BackendTest;
using octavo::testing::IsOk;

class CompletionQueueTest : public BackendTest {
 protected:
  // Before the queue's events are destroyed.
  void TearDown() override { EXPECT_THAT(stream_.ref().Synchronize(), IsOk()); }
  void Push(int64_t records, bool volume = false) {
    Completion item;
    item.records = records;
    if (volume) item.volume = std::make_shared<ActiveVolume>(AscanCoverage({}));
    item.event = queue_.TakeEvent();
    ASSERT_THAT(queue_.Push(std::move(item), stream_.ref()), IsOk());
  }
  CompletionQueue queue_;
};

TEST_P(CompletionQueueTest, CompletionsComeInOrderBehindTheirEvents) {
  ASSERT_THAT(queue_.Allocate(device_, 3, 1, false), IsOk());
  EXPECT_EQ(queue_.NonFiniteWords(0), nullptr);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_THAT(device_.Delay(stream_.ref(), 50'000'000), IsOk());
  Push(1);
  Push(2);
  Completion item;
  ASSERT_TRUE(queue_.Next(&item));
  EXPECT_EQ(item.records, 1);
  ASSERT_THAT(queue_.Wait(item), IsOk());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
  queue_.Recycle(item);
  ASSERT_TRUE(queue_.Next(&item));
  EXPECT_EQ(item.records, 2);
  ASSERT_THAT(queue_.Wait(item), IsOk());
  queue_.Recycle(item);
  queue_.Close();
  EXPECT_FALSE(queue_.Next(&item));
}

TEST_P(CompletionQueueTest, WhatWasPushedBeforeTheCloseStillComes) {
  ASSERT_THAT(queue_.Allocate(device_, 2, 1, false), IsOk());
  Push(7);
  queue_.Close();
  Completion item;
  EXPECT_TRUE(queue_.Next(&item));
  EXPECT_EQ(item.records, 7);
  EXPECT_FALSE(queue_.Next(&item));
}

TEST_P(CompletionQueueTest, AnEventIsTakenAgainOnlyWhenItIsRecycled) {
  ASSERT_THAT(queue_.Allocate(device_, 2, 1, false), IsOk());
  Push(1);
  Push(2);
  std::atomic<bool> taken{false};
  int event = -1;
  std::thread taker([&] {
    event = queue_.TakeEvent();
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(taken);
  Completion item;
  ASSERT_TRUE(queue_.Next(&item));
  const int first = item.event;
  queue_.Recycle(item);
  taker.join();
  EXPECT_EQ(event, first);
}

TEST_P(CompletionQueueTest, TheCircleGoesAroundManyTimes) {
  ASSERT_THAT(queue_.Allocate(device_, 3, 1, false), IsOk());
  std::thread follower([&] {
    int64_t expected = 0;
    for (Completion item; queue_.Next(&item); queue_.Recycle(item)) {
      EXPECT_EQ(item.records, expected++);
      EXPECT_THAT(queue_.Wait(item), IsOk());
    }
    EXPECT_EQ(expected, 500);
  });
  for (int64_t i = 0; i < 500; ++i) Push(i);
  queue_.Close();
  follower.join();
}

TEST_P(CompletionQueueTest, VolumesCountUntilTheyAreRecycled) {
  ASSERT_THAT(queue_.Allocate(device_, 4, 1, false), IsOk());
  Push(1);
  EXPECT_EQ(queue_.Volumes(), 0);
  Push(2, /*volume=*/true);
  EXPECT_EQ(queue_.Volumes(), 1);
  Completion item;
  ASSERT_TRUE(queue_.Next(&item));
  queue_.Recycle(item);
  ASSERT_TRUE(queue_.Next(&item));
  EXPECT_EQ(queue_.Volumes(), 1);
  queue_.Recycle(item);
  EXPECT_EQ(queue_.Volumes(), 0);
}

TEST_P(CompletionQueueTest, EachEventHasWordsOfItsOwn) {
  constexpr int kEvents = 3, kLanes = 2;
  ASSERT_THAT(queue_.Allocate(device_, kEvents, kLanes, true), IsOk());
  constexpr int kSeal = static_cast<int>(kSealWords) * kLanes + 1;
  for (int e = 0; e < kEvents; ++e) {
    for (int w = 0; w < kSeal; ++w) queue_.SealWords(e)[w] = static_cast<uint64_t>(100 * e + w);
    for (int l = 0; l < kLanes; ++l)
      queue_.NonFiniteWords(e)[l] = static_cast<uint64_t>(10 * e + l);
  }
  for (int e = 0; e < kEvents; ++e) {
    for (int w = 0; w < kSeal; ++w)
      EXPECT_EQ(queue_.SealWords(e)[w], static_cast<uint64_t>(100 * e + w));
    EXPECT_EQ(*queue_.RawDigestWord(e), static_cast<uint64_t>(100 * e + kSeal - 1));
    for (int l = 0; l < kLanes; ++l)
      EXPECT_EQ(queue_.NonFiniteWords(e)[l], static_cast<uint64_t>(10 * e + l));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CompletionQueueTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
