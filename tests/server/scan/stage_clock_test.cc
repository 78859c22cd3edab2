#include "server/scan/stage_clock.h"

#include <set>

#include "tests/support/device/backend_param.h"
#include "tests/support/device/forwarding_device.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;

/// A device whose clock is 1,000,000 ns behind the host's.
class Behind final : public octavo::testing::ForwardingDevice {
 public:
  Behind() : ForwardingDevice(octavo::testing::SharedDevice("host")) {}
  absl::StatusOr<ClockReading> ReadClock() override {
    ++readings;
    return ClockReading{.device_ns = 4'000'000, .host_ns = 5'000'000};
  }
  int readings = 0;
};

TEST(StageClockTest, StampsAreToldByTheHostsClockAndInOrder) {
  Behind device;
  StageClock clock;
  ASSERT_THAT(clock.Allocate(device, 4), IsOk());
  int64_t* const uploaded = clock.UploadStamp(1).data();
  int64_t* const processed = clock.ProcessedStamp(0).data();
  int64_t* const on_host = clock.OnHostStamp(0).data();
  *uploaded = 7'000'000;
  *processed = 7'500'000;
  *on_host = 7'400'000;  // a clock error: earlier than the stage before
  Completion item;
  item.enqueued_ns = 6'000'000;
  item.uploaded = uploaded;
  item.processed = processed;
  item.on_host = on_host;
  const StageTimes stages = clock.StagesOf(item, 9'000'000, 9'100'000);
  EXPECT_EQ(stages.taken_ns, 6'000'000);
  EXPECT_EQ(stages.uploaded_ns, 8'000'000);
  EXPECT_EQ(stages.processed_ns, 8'500'000);
  EXPECT_EQ(stages.on_host_ns, 8'500'000);
  EXPECT_EQ(stages.seen_ns, 9'000'000);
  EXPECT_EQ(stages.sealed_ns, 9'100'000);
  // A stamp is never later than its observation, and a missing stamp gives no time.
  *uploaded = 20'000'000;
  *processed = 0;
  item.on_host = nullptr;
  EXPECT_EQ(clock.StagesOf(item, 9'000'000, 9'100'000).uploaded_ns, 9'000'000);
  EXPECT_EQ(clock.StagesOf(item, 9'000'000, 9'100'000).processed_ns, 0);
  EXPECT_EQ(clock.StagesOf(item, 9'000'000, 9'100'000).on_host_ns, 0);
}

TEST(StageClockTest, WhatIsInFlightKeepsItsOwnStamps) {
  Behind device;
  StageClock clock;
  ASSERT_THAT(clock.Allocate(device, 3), IsOk());
  std::set<int64_t*> stamps;
  for (int64_t i = 5; i < 5 + 4; ++i) {
    for (const HostSpan<int64_t> stamp :
         {clock.UploadStamp(i), clock.ProcessedStamp(i), clock.OnHostStamp(i)}) {
      EXPECT_EQ(stamp.count(), 1);
      stamps.insert(stamp.data());
    }
  }
  EXPECT_EQ(stamps.size(), 12u);
  EXPECT_EQ(clock.UploadStamp(5).data(), clock.UploadStamp(9).data());
}

TEST(StageClockTest, TheDevicesClockIsReadAgainAfterAWhile) {
  Behind device;
  StageClock clock;
  ASSERT_THAT(clock.Allocate(device, 3), IsOk());
  EXPECT_EQ(device.readings, 1);
  clock.KeepInStep(device, 5'000'000 + 100'000'000);
  EXPECT_EQ(device.readings, 1);
  clock.KeepInStep(device, 5'000'000 + 100'000'001);
  EXPECT_EQ(device.readings, 2);
}

}  // namespace
}  // namespace octavo::engine
