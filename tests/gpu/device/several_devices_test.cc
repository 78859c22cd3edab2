// Several devices in one process: copies between them, waits across them, and the loss of one
// device, which must leave the others intact.

#include <chrono>
#include <numeric>
#include <random>

#include "gpu/base/status.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::IsError;
using testing::IsOk;

class SeveralDevicesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    devices_ = testing::SeveralDevices(GetParam());
    if (devices_.empty()) GTEST_SKIP() << "the machine has one device of this backend";
    for (auto& device : devices_) {
      ASSERT_OK_AND_ASSIGN(Stream stream, device->NewStream(StreamPriority::kNormal));
      streams_.push_back(std::move(stream));
    }
  }
  std::vector<uint32_t> Read(size_t d, const DeviceBuffer& buffer, size_t count) {
    std::vector<uint32_t> got(count);
    EXPECT_THAT(devices_[d]->CopyToHost(streams_[d].ref(), got.data(), buffer.data(),
                                        static_cast<int64_t>(4 * count)),
                IsOk());
    EXPECT_THAT(streams_[d].ref().Synchronize(), IsOk());
    return got;
  }
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Stream> streams_;  // after the devices: streams are destroyed first
};

TEST_P(SeveralDevicesTest, EachIsADeviceOfItsOwn) {
  EXPECT_EQ(devices_[0]->info().index, 0);
  EXPECT_EQ(devices_[1]->info().index, 1);
  EXPECT_NE(devices_[0]->info().uuid, devices_[1]->info().uuid);
  ASSERT_OK_AND_ASSIGN(const DeviceMemory memory, devices_[1]->Memory());
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_GE(devices_[0]->info().total_bytes, memory.free_bytes);
}

// A value travels round all devices. Copies order each round by events only; delays expose a
// missing wait.
TEST_P(SeveralDevicesTest, CopiesBetweenThemKeepTheOrderOfEvents) {
  constexpr size_t kWords = 1 << 18;
  constexpr uint32_t kRounds = 12;
  std::vector<DeviceBuffer> buffers;
  std::vector<Event> ready;
  for (size_t d = 0; d < 2; ++d) {
    ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, devices_[d]->Allocate(4 * kWords));
    ASSERT_THAT(devices_[d]->Fill(streams_[d].ref(), buffer.data(), 4 * kWords, 0xA5A5A5A5u),
                IsOk());
    ASSERT_THAT(streams_[d].ref().Synchronize(), IsOk());
    buffers.push_back(std::move(buffer));
    ASSERT_OK_AND_ASSIGN(Event event, devices_[d]->NewEvent());
    ready.push_back(std::move(event));
  }
  ASSERT_OK_AND_ASSIGN(DeviceBuffer log, devices_[1]->Allocate(kRounds * 8));
  ASSERT_OK_AND_ASSIGN(Event read, devices_[1]->NewEvent());
  for (uint32_t round = 0; round < kRounds; ++round) {
    ASSERT_THAT(read.EnqueueWait(streams_[0].ref()), IsOk());
    ASSERT_THAT(devices_[0]->Delay(streams_[0].ref(), 2'000'000), IsOk());
    ASSERT_THAT(devices_[0]->Fill(streams_[0].ref(), buffers[0].data(), 4 * kWords, round), IsOk());
    ASSERT_THAT(devices_[0]->CopyAcross(streams_[0].ref(), buffers[1].data(), buffers[0].data(),
                                        4 * kWords),
                IsOk());
    ASSERT_THAT(ready[0].Record(streams_[0].ref()), IsOk());
    ASSERT_THAT(ready[0].EnqueueWait(streams_[1].ref()), IsOk());
    ASSERT_THAT(devices_[1]->CopyOnDevice(streams_[1].ref(), log.as<uint32_t>() + 2 * round,
                                          buffers[1].data(), 4),
                IsOk());
    ASSERT_THAT(devices_[1]->CopyOnDevice(streams_[1].ref(), log.as<uint32_t>() + 2 * round + 1,
                                          buffers[1].as<uint32_t>() + kWords - 1, 4),
                IsOk());
    ASSERT_THAT(read.Record(streams_[1].ref()), IsOk());
  }
  const auto got = Read(1, log, 2 * kRounds);
  for (uint32_t round = 0; round < kRounds; ++round) {
    EXPECT_EQ(got[2 * round], round);
    EXPECT_EQ(got[2 * round + 1], round);
  }
}

TEST_P(SeveralDevicesTest, AWholePeerCopyIsExact) {
  std::mt19937 random(testing::FreshSeed());
  std::vector<uint32_t> values(1000003);
  for (auto& v : values) v = static_cast<uint32_t>(random());
  const auto bytes = static_cast<int64_t>(4 * values.size());
  ASSERT_OK_AND_ASSIGN(DeviceBuffer from, devices_[1]->Allocate(bytes));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer to, devices_[0]->Allocate(bytes));
  ASSERT_THAT(devices_[0]->Fill(streams_[0].ref(), to.data(), bytes, 0xA5A5A5A5u), IsOk());
  ASSERT_THAT(streams_[0].ref().Synchronize(), IsOk());
  ASSERT_THAT(devices_[1]->CopyToDevice(streams_[1].ref(), from.data(), values.data(), bytes),
              IsOk());
  ASSERT_THAT(devices_[1]->CopyAcross(streams_[1].ref(), to.data(), from.data(), bytes), IsOk());
  ASSERT_THAT(streams_[1].ref().Synchronize(), IsOk());
  EXPECT_EQ(Read(0, to, values.size()), values);
}

// The same in the other direction: the receiving device enqueues the copy.
TEST_P(SeveralDevicesTest, TheReceiverMayCopyToo) {
  std::mt19937 random(testing::FreshSeed());
  std::vector<uint32_t> values(300007);
  for (auto& v : values) v = static_cast<uint32_t>(random());
  const auto bytes = static_cast<int64_t>(4 * values.size());
  ASSERT_OK_AND_ASSIGN(DeviceBuffer from, devices_[1]->Allocate(bytes));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer to, devices_[0]->Allocate(bytes));
  ASSERT_OK_AND_ASSIGN(Event there, devices_[1]->NewEvent());
  ASSERT_THAT(devices_[0]->Fill(streams_[0].ref(), to.data(), bytes, 0xA5A5A5A5u), IsOk());
  ASSERT_THAT(devices_[1]->Delay(streams_[1].ref(), 20'000'000), IsOk());
  ASSERT_THAT(devices_[1]->CopyToDevice(streams_[1].ref(), from.data(), values.data(), bytes),
              IsOk());
  ASSERT_THAT(there.Record(streams_[1].ref()), IsOk());
  ASSERT_THAT(there.EnqueueWait(streams_[0].ref()), IsOk());
  ASSERT_THAT(devices_[0]->CopyAcross(streams_[0].ref(), to.data(), from.data(), bytes), IsOk());
  ASSERT_THAT(streams_[0].ref().Synchronize(), IsOk());
  EXPECT_EQ(Read(0, to, values.size()), values);
}

TEST_P(SeveralDevicesTest, ALostDeviceSaysSoAndTheOtherGoesOn) {
  ASSERT_OK_AND_ASSIGN(DeviceBuffer lost, devices_[1]->Allocate(4096));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer kept, devices_[0]->Allocate(4096));
  ASSERT_OK_AND_ASSIGN(Event event, devices_[1]->NewEvent());
  ASSERT_THAT(devices_[1]->Delay(streams_[1].ref(), 20'000'000), IsOk());
  ASSERT_THAT(devices_[1]->Fill(streams_[1].ref(), lost.data(), 4096, 7), IsOk());
  ASSERT_THAT(event.Record(streams_[1].ref()), IsOk());
  devices_[1]->InjectFault("it was pulled out");
  devices_[1]->InjectFault("a second reason");
  const auto is_lost = IsError(absl::StatusCode::kUnavailable, "pulled out");
  EXPECT_THAT(devices_[1]->Health(), is_lost);
  EXPECT_EQ(InfoOf(devices_[1]->Health()).reason, Reason::kDeviceLost);
  // Unfinished work ends with the device, and nothing waits for ever.
  EXPECT_THAT(event.Synchronize(), is_lost);
  EXPECT_THAT(event.Query(), is_lost);
  EXPECT_THAT(streams_[1].ref().Synchronize(), is_lost);
  EXPECT_THAT(devices_[1]->Fill(streams_[1].ref(), lost.data(), 4096, 8), is_lost);
  EXPECT_THAT(devices_[1]->Allocate(16), is_lost);
  EXPECT_THAT(devices_[1]->Memory(), is_lost);
  EXPECT_THAT(devices_[0]->Health(), IsOk());
  EXPECT_THAT(devices_[0]->Fill(streams_[0].ref(), kept.data(), 4096, 9), IsOk());
  EXPECT_EQ(Read(0, kept, 1)[0], 9u);
}

TEST_P(SeveralDevicesTest, ADelayTakesItsTimeOnTheStreamAndNotOnTheCaller) {
  using Clock = std::chrono::steady_clock;
  ASSERT_OK_AND_ASSIGN(Event event, devices_[0]->NewEvent());
  ASSERT_THAT(devices_[0]->Delay(streams_[0].ref(), 1000), IsOk());  // the kernel is loaded
  ASSERT_THAT(streams_[0].ref().Synchronize(), IsOk());
  bool beside = false;
  for (int i = 0; i < 20 && !beside; ++i) {  // this thread may be held up by other programs
    const auto begin = Clock::now();
    ASSERT_THAT(devices_[0]->Delay(streams_[0].ref(), 100'000'000), IsOk());
    ASSERT_THAT(event.Record(streams_[0].ref()), IsOk());
    ASSERT_OK_AND_ASSIGN(const bool passed, event.Query());
    beside = !passed;
    ASSERT_THAT(event.Synchronize(), IsOk());
    EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(99));
  }
  EXPECT_TRUE(beside) << "the caller waited";
}

INSTANTIATE_TEST_SUITE_P(Backends, SeveralDevicesTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
