// Streams of the host that leave cores to others.

#include "gpu/device/host/host_stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tbb/info.h"
#include "tbb/parallel_for.h"

#include "gpu/backend/open_devices.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using host::HostEvent;
using host::HostHealth;
using host::HostStream;
using octavo::testing::IsOk;

/// The most threads that worked at the same time on one task of a stream with that bound.
int MostThreads(int bound) {
  HostStream stream(std::make_shared<HostHealth>(), bound);
  std::atomic<int> now = 0, most = 0;
  stream.Enqueue(host::Task([&] {
    tbb::parallel_for(0, 200, [&](int) {
      const int here = ++now;
      int before = most;
      while (before < here && !most.compare_exchange_weak(before, here)) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      --now;
    });
    return absl::OkStatus();
  }));
  EXPECT_THAT(stream.Synchronize(), IsOk());
  return most;
}

TEST(HostStreamTest, NoMoreThreadsWorkOnATaskThanAreAllowed) {
  for (int bound = 1; bound <= std::min(4, tbb::info::default_concurrency()); ++bound) {
    const int most = MostThreads(bound);
    EXPECT_GE(most, 1);
    EXPECT_LE(most, bound);
  }
}

// What waits for other streams takes no thread from their tasks.
TEST(HostStreamTest, StreamsThatWaitForEachOtherGoOn) {
  const auto health = std::make_shared<HostHealth>();
  std::array<std::unique_ptr<HostStream>, 6> streams;
  for (auto& stream : streams) stream = std::make_unique<HostStream>(health, 1);
  std::array<std::unique_ptr<HostEvent>, 6> events;
  for (auto& event : events) event = std::make_unique<HostEvent>(health);
  int step = 0;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < streams.size(); ++i) {
      const size_t before = (i + streams.size() - 1) % streams.size();
      if (round > 0 || i > 0) ASSERT_THAT(streams[i]->Wait(*events[before]), IsOk());
      streams[i]->Enqueue(host::Task([&step, wanted = round * 6 + static_cast<int>(i)] {
        EXPECT_EQ(step, wanted);
        tbb::parallel_for(0, 4, [](int) {});
        ++step;
        return absl::OkStatus();
      }));
      ASSERT_THAT(streams[i]->Record(*events[i]), IsOk());
    }
  }
  for (auto& stream : streams) EXPECT_THAT(stream->Synchronize(), IsOk());
  EXPECT_EQ(step, 120);
}

TEST(HostStreamTest, ErrorsAndExhaustedMemoryOfATaskEndItsWork) {
  HostStream stream(std::make_shared<HostHealth>(), 1);
  bool ran = false;
  stream.Enqueue(host::Task([]() -> absl::Status { throw std::bad_alloc(); }));
  stream.Enqueue(host::Task([&] {
    ran = true;
    return absl::OkStatus();
  }));
  EXPECT_EQ(stream.Synchronize().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(ran);
}

TEST(OpenDevicesTest, TheHostForJobsComesLastAndLeavesCores) {
  for (const int devices : {1, 3}) {
    ASSERT_OK_AND_ASSIGN(const OpenedDevices opened, OpenDevices("host", devices, true));
    ASSERT_EQ(opened.devices.size(), static_cast<size_t>(devices + 1));
    ASSERT_OK_AND_ASSIGN(const OpenedDevices without, OpenDevices("host", devices));
    for (int d = 0; d <= devices; ++d) {
      const DeviceInfo& info = opened.devices[static_cast<size_t>(d)]->info();
      EXPECT_EQ(info.index, d);
      EXPECT_EQ(info.backend, "host");
      EXPECT_NEAR(
          static_cast<double>(info.total_bytes),
          static_cast<double>(without.devices[0]->info().total_bytes) * devices / (devices + 1), 2)
          << "all share the memory";
    }
    const int cores = tbb::info::default_concurrency();
    EXPECT_NE(opened.devices.back()->info().model.find(std::to_string(std::max(1, cores * 3 / 4)) +
                                                       " of "),
              std::string::npos)
        << opened.devices.back()->info().model;
  }
}

}  // namespace
}  // namespace octavo
