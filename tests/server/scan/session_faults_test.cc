// A thread of a scan that an exception breaks off, as for lack of memory: the scan fails and says
// why, nothing stays behind, and the process goes on.

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/base/failpoint.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::SessionRun;

struct Fault {
  std::string point;
  int count;
};

class SessionFaultsTest : public ::testing::TestWithParam<Fault> {
 protected:
  ~SessionFaultsTest() override { ArmFailpoint(""); }
};

TEST_P(SessionFaultsTest, TheScanFailsAndTheProcessGoesOn) {
  constexpr int64_t kVolumes = 4;
  const ResolvedScan scan =
      ResolvedKnown({.ascans_per_bscan = 24, .bscans_per_volume = 10, .volumes = kVolumes});
  const auto run = [&] {
    SessionRun session({&SharedDevice("host")});
    EXPECT_THAT(session.Start(scan, std::make_unique<KnownSource>(KnownRecords(3, 64),
                                                                  scan.volume_records * kVolumes,
                                                                  nullptr, nullptr)),
                IsOk());
    const ScanStatus status = session.WaitForTheEnd();
    for (const VolumeStatus& volume : session.store().List())
      EXPECT_NE(volume.state, VolumeState::kAcquiring) << volume.name;
    return status;
  };
  ArmFailpoint(absl::StrCat(GetParam().point, ":throw=bad_alloc:", GetParam().count));
  const ScanStatus broken = run();
  EXPECT_FALSE(FailpointArmed()) << "it was passed";
  EXPECT_EQ(broken.state, ScanState::kFailed);
  EXPECT_THAT(broken.reason, ::testing::HasSubstr("no host memory left"));
  const ScanStatus next = run();
  EXPECT_EQ(next.state, ScanState::kDone);
  EXPECT_EQ(next.volumes_done, kVolumes);
}

INSTANTIATE_TEST_SUITE_P(Points, SessionFaultsTest,
                         ::testing::Values(Fault{"acquire_turn", 1}, Fault{"compute_turn", 1},
                                           Fault{"compute_turn", 7}, Fault{"retire_turn", 1},
                                           Fault{"retire_turn", 6}),
                         [](const auto& info) {
                           return info.param.point + std::to_string(info.param.count);
                         });

}  // namespace
}  // namespace octavo::engine
