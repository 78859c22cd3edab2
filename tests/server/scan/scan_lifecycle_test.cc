#include "server/scan/scan_lifecycle.h"

#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using testing::FewAscans;
using testing::ScanSurroundings;

class ScanLifecycleTest : public ::testing::Test {
 protected:
  ScanSurroundings of_{FewAscans()};
  ScanLifecycle& life_ = of_.life;
};

TEST_F(ScanLifecycleTest, StatesAreToldOnceAndAFinalOneStays) {
  life_.Begin();
  life_.SetState(ScanState::kRunning);
  life_.SetState(ScanState::kDraining);
  life_.SetState(ScanState::kDone);
  life_.SetState(ScanState::kFailed);
  EXPECT_EQ(life_.state(), ScanState::kDone);
  EXPECT_EQ(of_.told.changes, 3);
  std::vector<EventKind> kinds;
  for (const ScanEvent& event : of_.Events()) kinds.push_back(event.kind);
  EXPECT_EQ(kinds,
            (std::vector<EventKind>{EventKind::kStarted, EventKind::kState, EventKind::kFinished}));
}

TEST_F(ScanLifecycleTest, TheFirstReasonWins) {
  EXPECT_TRUE(life_.EndWith(ScanState::kDone, Reason::kCompleted, "all"));
  EXPECT_FALSE(life_.EndWith(ScanState::kFailed, Reason::kSourceLost, "gone"));
  EXPECT_EQ(life_.End(), ScanState::kDone);
  EXPECT_EQ(of_.Status().reason_code, Reason::kCompleted);
}

TEST_F(ScanLifecycleTest, AStopWaitsForTheVolumeAndMayBecomeACancel) {
  life_.Begin();
  life_.StopAtVolume(Reason::kStopped, "by a client");
  EXPECT_TRUE(life_.stop_at_volume());
  EXPECT_FALSE(life_.aborted().stop_requested());
  EXPECT_EQ(life_.state(), ScanState::kDraining);
  life_.Cancel(Reason::kCancelled, "by another");
  EXPECT_TRUE(life_.aborted().stop_requested());
  EXPECT_EQ(life_.End(), ScanState::kCancelled);
  EXPECT_EQ(life_.why().second, "by another");
  life_.Fail(Reason::kDeviceLost, "too late");
  EXPECT_EQ(life_.why().second, "by another");
}

TEST_F(ScanLifecycleTest, AFailureReplacesAnEndThatHasNotCome) {
  life_.EndWith(ScanState::kDone, Reason::kCompleted, "all");
  life_.Fail(Reason::kDeviceError, "a launch failed");
  EXPECT_TRUE(life_.aborted().stop_requested());
  EXPECT_EQ(life_.End(), ScanState::kFailed);
  EXPECT_EQ(of_.Status().reason_code, Reason::kDeviceError);
}

TEST_F(ScanLifecycleTest, ARefusalNamesTheState) {
  EXPECT_THAT(life_.Require({ScanState::kQueued}, "name", "; only queued"), IsOk());
  const absl::Status refused = life_.Require({ScanState::kRunning}, "name", "; only running");
  EXPECT_EQ(refused.message(), "scans/x is QUEUED; only running");
  EXPECT_EQ(InfoOf(refused).reason, Reason::kScanState);
}

TEST_F(ScanLifecycleTest, OneCallerStartsTheScan) {
  EXPECT_TRUE(life_.TakeStart());
  EXPECT_FALSE(life_.TakeStart());
}

}  // namespace
}  // namespace octavo::engine
