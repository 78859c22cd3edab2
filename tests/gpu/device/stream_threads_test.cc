#include "gpu/device/host/stream_threads.h"

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <unistd.h>

#include "gtest/gtest.h"

#include "tests/support/device/backend_param.h"

namespace octavo {
namespace {

using host::StreamThreads;

constexpr std::chrono::milliseconds kLong = std::chrono::minutes(10);

TEST(StreamThreadsTest, StreamsOneAfterTheOtherShareAThread) {
  StreamThreads threads(kLong);
  std::set<pid_t> ids;
  for (int i = 0; i < 100; ++i) StreamThreads::Thread(threads, [&] { ids.insert(::gettid()); });
  EXPECT_EQ(ids.size(), 1u);
  EXPECT_EQ(ids.count(::gettid()), 0u);
  EXPECT_EQ(threads.Count(), 1u);
}

TEST(StreamThreadsTest, StreamsAtTheSameTimeHaveThreadsOfTheirOwn) {
  StreamThreads threads(kLong);
  for (int round = 0; round < 3; ++round) {
    std::promise<void> gate;
    std::shared_future<void> open = gate.get_future().share();
    std::atomic<int> begun = 0, ended = 0;
    {
      const auto run = [&] {
        ++begun;
        open.wait();
        ++ended;
      };
      std::array<std::optional<StreamThreads::Thread>, 4> all;
      for (auto& one : all) one.emplace(threads, run);
      while (begun < 4) std::this_thread::yield();  // none waits for the end of another
      gate.set_value();
    }
    EXPECT_EQ(ended, 4) << "the end of each is waited for";
    EXPECT_EQ(threads.Count(), 4u);
  }
}

TEST(StreamThreadsTest, ThreadsWithoutAStreamEndAfterAWhile) {
  StreamThreads threads(std::chrono::milliseconds(1));
  std::promise<void> gate;
  std::optional<StreamThreads::Thread> stays(std::in_place, threads,
                                             [&] { gate.get_future().wait(); });
  for (int i = 0; i < 200; ++i) StreamThreads::Thread(threads, [] {});
  while (threads.Count() > 1) std::this_thread::yield();
  EXPECT_EQ(threads.Count(), 1u) << "one is at work";
  gate.set_value();
  stays.reset();
  while (threads.Count() > 0) std::this_thread::yield();
  bool ran = false;
  StreamThreads::Thread(threads, [&] { ran = true; });
  EXPECT_TRUE(ran);
}

// The end may come while a thread is between its last work and its next wait.
TEST(StreamThreadsTest, TheEndWaitsForNoPatience) {
  for (int i = 0; i < 2000; ++i) {
    StreamThreads threads(kLong);
    StreamThreads::Thread(threads, [] {});
  }
}

TEST(StreamThreadsTest, ManyAtOnce) {
  StreamThreads threads(std::chrono::milliseconds(1));
  std::atomic<int> ran = 0;
  {
    std::array<std::jthread, 8> users;
    for (std::jthread& user : users) {
      user = std::jthread([&] {
        for (int i = 0; i < 500; ++i) {
          StreamThreads::Thread one(threads, [&] { ++ran; });
          StreamThreads::Thread other(threads, [&] { ++ran; });
        }
      });
    }
  }
  EXPECT_EQ(ran, 8000);
  EXPECT_LE(threads.Count(), 16u);
}

// Streams come and go with scans.
TEST(StreamThreadsTest, TheStreamsOfADeviceLeaveNoThreads) {
  Device& device = testing::SharedDevice("host");
  const auto use = [&] {
    const std::array streams = {device.NewStream(StreamPriority::kNormal),
                                device.NewStream(StreamPriority::kNormal)};
    for (const auto& stream : streams) ASSERT_TRUE(stream.ok() && stream->ref().Synchronize().ok());
  };
  use();
  const size_t before = StreamThreads::OfProcess().Count();
  for (int i = 0; i < 50; ++i) use();
  EXPECT_EQ(StreamThreads::OfProcess().Count(), before);
}

}  // namespace
}  // namespace octavo
