#include "server/scan/volume_builder.h"

#include "tests/support/scan/builder_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using testing::BuilderParts;
using testing::Captures;
using testing::ResolvedKnown;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

/// A builder without a session: the test reports records, and nothing is computed.
class BuilderRun : public BuilderParts {
 public:
  explicit BuilderRun(const std::function<void(ScanSpec&)>& change = nullptr)
      : BuilderParts(ResolvedKnown(
            {.ascans_per_bscan = 6, .bscans_per_volume = 4, .volumes = 3, .flyback_records = 2},
            change)) {}
  /// Records [first, first + count) of the active volume arrived. Returns whether they complete it.
  bool Add(int64_t first, int64_t count) {
    const int64_t active = std::clamp<int64_t>(30 - first, 0, count);  // 4 lines of 8, less flyback
    const auto complete = builder.Add({.volume = builder.active()->index,
                                       .first_record = first,
                                       .records = count,
                                       .active = active},
                                      nullptr, {.acquired = {.monotonic_ns = 100 + first}});
    EXPECT_THAT(complete.status(), IsOk());
    return *complete;
  }
  const ActiveVolume& End() {
    ended = builder.TakeActive();
    EXPECT_THAT(builder.End(*ended), IsOk());
    return *ended;
  }

  std::shared_ptr<ActiveVolume> ended;
};

TEST(VolumeBuilderTest, AVolumeIsCompleteWithItsLastAscan) {
  BuilderRun run;
  ASSERT_THAT(run.builder.Begin(0, {.acquired = {.monotonic_ns = 7}}), IsOk());
  ASSERT_NE(run.builder.active(), nullptr);
  EXPECT_EQ(run.builder.EndOfActive(), 30);
  EXPECT_FALSE(run.Add(0, 20));
  EXPECT_FALSE(run.Add(20, 9));
  EXPECT_TRUE(run.Add(29, 3));
  const ActiveVolume& volume = run.End();
  EXPECT_EQ(run.builder.active(), nullptr);
  EXPECT_TRUE(volume.status.complete);
  EXPECT_EQ(volume.status.missing_ascans, 0);
  EXPECT_EQ(volume.status.acquired_begin.monotonic_ns, 7);
  EXPECT_EQ(volume.status.acquired_end.monotonic_ns, 129);
  EXPECT_EQ(volume.status.scan, "scans/x");
  EXPECT_EQ(run.of.store.Get(volume.status.name)->state, VolumeState::kAcquiring);
  EXPECT_NE(volume.first_records, nullptr);
  EXPECT_EQ(run.of.progress.missing_ascans, 0);
}

TEST(VolumeBuilderTest, WhatDidNotComeIsMissing) {
  BuilderRun run;
  ASSERT_THAT(run.builder.Begin(0, {}), IsOk());
  EXPECT_FALSE(run.Add(0, 4));
  EXPECT_FALSE(run.Add(10, 8));  // 4 ... 9 are missing: two A-scans, flyback, two of the next line
  const ActiveVolume& volume = run.End();
  EXPECT_FALSE(volume.status.complete);
  // Two A-scans of the third line arrived; the rest of it and the fourth line are missing.
  EXPECT_EQ(volume.status.missing, (Ranges{{4, 4}, {14, 10}}));
  EXPECT_EQ(volume.status.missing_ascans, 14);
  EXPECT_EQ(run.of.progress.missing_ascans, 14);
}

TEST(VolumeBuilderTest, VolumesOfWhichNothingCameAreDropped) {
  BuilderRun run;
  ASSERT_THAT(run.builder.Begin(2, {}), IsOk());
  EXPECT_EQ(run.builder.next_volume(), 3);
  EXPECT_EQ(run.of.Status().volumes_dropped, 2);
  EXPECT_EQ(run.of.progress.missing_ascans, 2 * 24);
  EXPECT_EQ(run.of.Status().current_volume, 2);
  EXPECT_TRUE(run.Add(0, 32));
  run.End();
  EXPECT_TRUE(run.builder.over());
  EXPECT_EQ(run.of.Status().reason_code, Reason::kCompleted);
}

TEST(VolumeBuilderTest, WithoutASlotTheScanEndsOrTheVolumeIsDropped) {
  for (const OnFull on_full : {OnFull::kStopAtVolume, OnFull::kDropNew}) {
    BuilderRun run([&](ScanSpec& spec) {
      Captures(1)(spec);
      spec.retention.on_full = on_full;
    });
    ASSERT_THAT(run.builder.Begin(0, {}), IsOk());
    run.Add(0, 32);
    run.End();
    ASSERT_THAT(run.builder.Begin(1, {}), IsOk());
    if (on_full == OnFull::kStopAtVolume) {
      EXPECT_TRUE(run.builder.over());
      EXPECT_EQ(run.of.Status().reason_code, Reason::kHoldSlotsFull);
      continue;
    }
    EXPECT_FALSE(run.builder.over());
    ASSERT_NE(run.builder.active(), nullptr);
    EXPECT_EQ(run.builder.active()->slot, nullptr);
    const std::shared_ptr<ActiveVolume> dropped = run.builder.TakeActive();
    ASSERT_THAT(run.builder.End(*dropped), IsOk());
    EXPECT_EQ(run.of.Status().volumes_dropped, 1);
    EXPECT_EQ(run.of.Events().back().text, "volume DROPPED");
    EXPECT_EQ(run.of.store.List().size(), 1u);
  }
}

TEST(VolumeBuilderTest, AStopLetsNoFurtherVolumeBegin) {
  BuilderRun run;
  run.of.life.StopAtVolume(Reason::kStopped, "asked");
  ASSERT_THAT(run.builder.Begin(0, {}), IsOk());
  EXPECT_TRUE(run.builder.over());
  EXPECT_EQ(run.builder.active(), nullptr);
}

TEST(VolumeBuilderTest, AnUpdateIsTakenBetweenTwoVolumes) {
  BuilderRun run;
  ASSERT_THAT(run.builder.Begin(0, {}), IsOk());
  const float before = run.of.scan.chain.level_hi;
  ResolvedScan updated = run.of.scan;
  updated.chain.level_hi = before + 5;
  ASSERT_THAT(run.updates.Offer(updated), IsOk());
  run.Add(0, 32);
  EXPECT_EQ(run.End().status.level_hi, before);
  ASSERT_THAT(run.builder.Begin(1, {}), IsOk());
  EXPECT_EQ(run.builder.active()->status.level_hi, before + 5);
  EXPECT_EQ(run.of.scan.chain.level_hi, before + 5);
  EXPECT_EQ(run.lanes.TakeReplaced().size(), 1u);
  run.Add(0, 32);
  EXPECT_NE(run.ended->status.origin, run.builder.active()->status.origin);
  run.End();
}

TEST(VolumeBuilderTest, WhatACountedScanNeverSawIsLost) {
  BuilderRun run;
  ASSERT_THAT(run.builder.Begin(0, {}), IsOk());
  run.Add(0, 32);
  run.End();
  run.builder.CountLost();
  EXPECT_EQ(run.of.Status().volumes_dropped, 2);
  EXPECT_EQ(run.of.progress.missing_ascans, 2 * 24);
}

TEST(VolumeBuilderTest, AFailedVolumeSaysWhyTheScanEnds) {
  BuilderRun run;
  ASSERT_THAT(run.builder.Begin(0, {}), IsOk());
  run.of.life.Cancel(Reason::kCancelled, "by a client");
  run.ended = run.builder.TakeActive();
  run.builder.Fail(*run.ended);
  const auto status = run.of.store.Get(run.ended->status.name);
  EXPECT_EQ(status->state, VolumeState::kFailed);
  EXPECT_EQ(status->reason, "by a client");
}

}  // namespace
}  // namespace octavo::engine
