// Unexpected errors during a move between tiers, and how long failures are remembered.

#include "server/volume/spiller.h"

#include <future>
#include <new>
#include <stop_token>
#include <utility>

#include "gpu/base/status.h"
#include "tests/server/volume/spiller_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class SpillerTest : public SpillerFixture {};

TEST_F(SpillerTest, AnExceptionLeavesTheVolumeWhereItIs) {
  Hold("volumes/a", "scans/a");
  fail_ = true;
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  EXPECT_EQ(volumes_.Get("volumes/a")->tier, Tier::kDevice);
  fail_ = false;
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  EXPECT_EQ(volumes_.Get("volumes/a")->tier, Tier::kDisk);
}

TEST_F(SpillerTest, AMoveThatNoThreadTakesOverLeavesTheVolumeWhereItIs) {
  Hold("volumes/a", "scans/a");
  const auto expect_as_before = [this] {
    const auto now = volumes_.Get("volumes/a");
    EXPECT_EQ(now->tier, Tier::kDevice);
    EXPECT_EQ(now->moving, Move::kNone);
  };
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  expect_as_before();
  EXPECT_NE(volumes_.Get("volumes/a")->last_error.find("no host memory left"), std::string::npos);
  ArmFailpoint("task_posted:throw=bad_alloc");
  absl::Status relocated;
  spiller_->Relocate("volumes/a", [&](const absl::Status& status) { relocated = status; });
  EXPECT_THAT(relocated, IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  expect_as_before();
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_FALSE(spiller_->Request("scans/a", Tier::kDisk));
  EXPECT_FALSE(spiller_->PendingOf("scans/a"));
  expect_as_before();
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
}

TEST_F(SpillerTest, ItsEndEndsTheMovesThatAreQueued) {
  Hold("volumes/a", "scans/a");
  Hold("volumes/b", "scans/b");
  std::promise<void> begun, go_on;
  on_meta_ = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    begun.set_value();
    go_on.get_future().wait();
  };
  std::vector<absl::Status> ends;
  const auto done = [&](const absl::StatusOr<VolumeStatus>& end) { ends.push_back(end.status()); };
  ASSERT_THAT(spiller_->Spill("volumes/a", Tier::kDisk, {}, done), IsOk());
  begun.get_future().wait();
  // The tier is too small for it.
  ASSERT_THAT(spiller_->Spill("volumes/b", Tier::kHost, {}, done), IsOk());
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_EQ(volumes_.Get(name)->moving, Move::kSpilling);
  go_on.set_value();
  spiller_ = nullptr;
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_THAT(ends[0], IsOk());
  EXPECT_THAT(ends[1], IsError(absl::StatusCode::kResourceExhausted, "HOST"));
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_EQ(volumes_.Get(name)->moving, Move::kNone);
  EXPECT_EQ(volumes_.Get("volumes/a")->tier, Tier::kDisk);
  EXPECT_EQ(volumes_.Get("volumes/b")->tier, Tier::kDevice);
}

// A move that a client cancels is no failure of the spiller.
TEST_F(SpillerTest, AStopAtEachStageLeavesTheVolumeWhereItIs) {
  Hold("volumes/a", "scans/a");
  std::stop_source stop;
  size_t reports = 0, stop_at = 0;
  const auto control = [&] {
    stop = std::stop_source();
    reports = 0;
    return WorkControl{.stop = stop.get_token(), .report = [&](const WorkProgress& progress) {
                         EXPECT_EQ(progress.stage, WorkStage::kCopying);
                         EXPECT_EQ(progress.total_bytes, 4096);
                         if (++reports == stop_at) stop.request_stop();
                       }};
  };
  for (const bool out : {true, false}) {
    const Tier from = out ? Tier::kDevice : Tier::kDisk, to = out ? Tier::kDisk : Tier::kDevice;
    stop_at = 1;
    const auto cancelled =
        out ? Spill("volumes/a", Tier::kDisk, control()) : Restore("volumes/a", control());
    EXPECT_THAT(cancelled, IsError(absl::StatusCode::kCancelled, "cancelled"));
    EXPECT_EQ(InfoOf(cancelled.status()).reason, Reason::kCancelled);
    EXPECT_EQ(reports, 1u);
    auto now = volumes_.Get("volumes/a");
    EXPECT_EQ(now->tier, from);
    EXPECT_EQ(now->moving, Move::kNone);
    EXPECT_EQ(spiller_->FailuresOf("scans/a"), 0);
    EXPECT_EQ(folder_->used_bytes() > 0, !out);
    stop_at = 0;
    EXPECT_THAT(out ? Spill("volumes/a", Tier::kDisk, control()) : Restore("volumes/a", control()),
                IsOk());
    EXPECT_GE(reports, 2u) << "before the first piece, and behind it";
    EXPECT_EQ(volumes_.Get("volumes/a")->tier, to);
  }
}

TEST_F(SpillerTest, WhatIsKnownAtOnceIsReturned) {
  Hold("volumes/a", "scans/a");
  EXPECT_EQ(InfoOf(Spill("volumes/none", Tier::kDisk).status()).reason, Reason::kNoVolume);
  EXPECT_EQ(InfoOf(Restore("volumes/none").status()).reason, Reason::kNoVolume);
  EXPECT_THAT(Restore("volumes/a"), IsOk()) << "it is there";
  ASSERT_OK_AND_ASSIGN(const VolumeMove move, volumes_.tiers().BeginSpill("volumes/a"));
  EXPECT_EQ(InfoOf(Restore("volumes/a").status()).reason, Reason::kMoving);
  EXPECT_EQ(InfoOf(Spill("volumes/a", Tier::kDisk).status()).reason, Reason::kMoving);
}

// A spill to where the volume is writes nothing, whatever else is done with it.
TEST_F(SpillerTest, WhatIsThereAlreadyIsNotWrittenAgain) {
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  const int64_t used = folder_->used_bytes();
  on_meta_ = [] { ADD_FAILURE() << "a file is written"; };
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  {
    ASSERT_OK_AND_ASSIGN(const VolumeCommit commit, volumes_.BeginCommit("volumes/a"));
    ASSERT_OK_AND_ASSIGN(const VolumeStatus now, Spill("volumes/a", Tier::kDisk));
    EXPECT_EQ(now.state, VolumeState::kCommitting);
    EXPECT_EQ(now.tier, Tier::kDisk);
  }
  ASSERT_OK_AND_ASSIGN(const VolumeMove move, volumes_.tiers().BeginRestore("volumes/a"));
  EXPECT_EQ(InfoOf(Spill("volumes/a", Tier::kDisk).status()).reason, Reason::kMoving);
  EXPECT_EQ(volumes_.Get("volumes/a")->moving, Move::kRestoring);
  EXPECT_EQ(folder_->used_bytes(), used);
}

TEST_F(SpillerTest, WhatIsDiscardedWhileItMovesIsNotSaidToHaveMoved) {
  Hold("volumes/a", "scans/a");
  on_meta_ = [this] {
    EXPECT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, "somebody else's"), IsOk());
  };
  const auto moved = Spill("volumes/a", Tier::kDisk);
  EXPECT_THAT(moved,
              IsError(absl::StatusCode::kNotFound, "has left memory: DISCARDED, somebody else's"));
  EXPECT_EQ(InfoOf(moved.status()).reason, Reason::kVolumeGone);
  EXPECT_EQ(folder_->used_bytes(), 0);
}

TEST_F(SpillerTest, FailuresAreKnownOfScansThatAreForgottenOneDay) {
  Hold("volumes/a", "scans/a");
  Hold("volumes/b", "jobs/b");
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_THAT(Spill(name, Tier::kHost), IsError(absl::StatusCode::kResourceExhausted, "HOST"));
  EXPECT_EQ(spiller_->FailuresOf("scans/a"), 1);
  EXPECT_EQ(spiller_->FailuresOf("jobs/b"), 0);
  spiller_->ForgetScan("scans/a");
  EXPECT_EQ(spiller_->FailuresOf("scans/a"), 0);
}

}  // namespace
}  // namespace octavo::engine
