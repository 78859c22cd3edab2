#include "server/scan/volume_builder.h"

#include "tests/support/device/backend_param.h"
#include "tests/support/scan/scan_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SharedDevice;
using testing::NoRelief;
using testing::ResolvedKnown;
using testing::ScanSurroundings;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

/// A builder without a session: the test reports records, and nothing is computed.
class BuilderRun {
 public:
  explicit BuilderRun(const std::function<void(ScanSpec&)>& change = nullptr)
      : of_(ResolvedKnown(
            {.ascans_per_bscan = 6, .bscans_per_volume = 4, .volumes = 3, .flyback_records = 2},
            change)),
        devices_(of_.Charge({&SharedDevice("host")})),
        memory_(of_.scan, &of_.ledger, nullptr, devices_),
        updates_("scans/x", of_.scan, &of_.ledger, devices_),
        lanes_(of_.scan, devices_),
        retention_(of_.scan.spec.retention, VolumeSlots(of_.scan),
                   {.scan = "scans/x",
                    .store = &of_.store,
                    .relief = &relief_,
                    .observer = &of_.told,
                    .ring_occupancy = [] { return 0.0; },
                    .slots_return = [] { return false; }}),
        builder_(&of_.scan, &lanes_,
                 {.scan = "scans/x",
                  .server_id = "testtest",
                  .store = &of_.store,
                  .memory = &memory_,
                  .updates = &updates_,
                  .retention = &retention_,
                  .events = &of_.events,
                  .progress = &of_.progress,
                  .life = &of_.life}) {
    EXPECT_THAT(lanes_.OpenStreams(), IsOk());
    EXPECT_THAT(memory_.AllocateSlots(lanes_.compute()), IsOk());
    EXPECT_THAT(lanes_.Allocate(), IsOk());
    EXPECT_THAT(builder_.Allocate(), IsOk());
    memory_.Begin();
  }
  ~BuilderRun() {
    lanes_.Synchronize();
    if (ended_ != nullptr) ended_->slot = nullptr;
    memory_.CloseSlots();
  }
  /// Records [first, first + count) of the active volume arrived. Returns whether they complete it.
  bool Add(int64_t first, int64_t count) {
    const int64_t active = std::clamp<int64_t>(30 - first, 0, count);  // 4 lines of 8, less flyback
    const auto complete = builder_.Add({.volume = builder_.active()->index,
                                        .first_record = first,
                                        .records = count,
                                        .active = active},
                                       nullptr, {.acquired = {.monotonic_ns = 100 + first}});
    EXPECT_THAT(complete.status(), IsOk());
    return *complete;
  }
  const ActiveVolume& End() {
    ended_ = builder_.TakeActive();
    EXPECT_THAT(builder_.End(*ended_), IsOk());
    return *ended_;
  }

  NoRelief relief_;
  ScanSurroundings of_;
  const std::vector<ScanDevice> devices_;
  ScanMemory memory_;
  ProcessingUpdates updates_;
  DeviceLanes lanes_;
  RetentionPolicy retention_;
  VolumeBuilder builder_;
  std::shared_ptr<ActiveVolume> ended_;
};

TEST(VolumeBuilderTest, AVolumeIsCompleteWithItsLastAscan) {
  BuilderRun run;
  ASSERT_THAT(run.builder_.Begin(0, {.acquired = {.monotonic_ns = 7}}), IsOk());
  ASSERT_NE(run.builder_.active(), nullptr);
  EXPECT_EQ(run.builder_.EndOfActive(), 30);
  EXPECT_FALSE(run.Add(0, 20));
  EXPECT_FALSE(run.Add(20, 9));
  EXPECT_TRUE(run.Add(29, 3));
  const ActiveVolume& volume = run.End();
  EXPECT_EQ(run.builder_.active(), nullptr);
  EXPECT_TRUE(volume.status.complete);
  EXPECT_EQ(volume.status.missing_ascans, 0);
  EXPECT_EQ(volume.status.acquired_begin.monotonic_ns, 7);
  EXPECT_EQ(volume.status.acquired_end.monotonic_ns, 129);
  EXPECT_EQ(volume.status.scan, "scans/x");
  EXPECT_EQ(run.of_.store.Get(volume.status.name)->state, VolumeState::kAcquiring);
  EXPECT_NE(volume.first_records, nullptr);
  EXPECT_EQ(run.of_.progress.missing_ascans, 0);
}

TEST(VolumeBuilderTest, WhatDidNotComeIsMissing) {
  BuilderRun run;
  ASSERT_THAT(run.builder_.Begin(0, {}), IsOk());
  EXPECT_FALSE(run.Add(0, 4));
  EXPECT_FALSE(run.Add(10, 8));  // 4 ... 9 are missing: two A-scans, flyback, two of the next line
  const ActiveVolume& volume = run.End();
  EXPECT_FALSE(volume.status.complete);
  // Two A-scans of the third line arrived; the rest of it and the fourth line are missing.
  EXPECT_EQ(volume.status.missing, (Ranges{{4, 4}, {14, 10}}));
  EXPECT_EQ(volume.status.missing_ascans, 14);
  EXPECT_EQ(run.of_.progress.missing_ascans, 14);
}

TEST(VolumeBuilderTest, VolumesOfWhichNothingCameAreDropped) {
  BuilderRun run;
  ASSERT_THAT(run.builder_.Begin(2, {}), IsOk());
  EXPECT_EQ(run.builder_.next_volume(), 3);
  EXPECT_EQ(run.of_.Status().volumes_dropped, 2);
  EXPECT_EQ(run.of_.progress.missing_ascans, 2 * 24);
  EXPECT_EQ(run.of_.Status().current_volume, 2);
  EXPECT_TRUE(run.Add(0, 32));
  run.End();
  EXPECT_TRUE(run.builder_.over());
  EXPECT_EQ(run.of_.Status().reason_code, "COMPLETED");
}

TEST(VolumeBuilderTest, WithoutASlotTheScanEndsOrTheVolumeIsDropped) {
  for (const OnFull on_full : {OnFull::kStopAtVolume, OnFull::kDropNew}) {
    BuilderRun run([&](ScanSpec& spec) {
      spec.retention.mode = RetentionMode::kCapture;
      spec.retention.hold_slots = 1;
      spec.retention.on_full = on_full;
    });
    ASSERT_THAT(run.builder_.Begin(0, {}), IsOk());
    run.Add(0, 32);
    run.End();
    ASSERT_THAT(run.builder_.Begin(1, {}), IsOk());
    if (on_full == OnFull::kStopAtVolume) {
      EXPECT_TRUE(run.builder_.over());
      EXPECT_EQ(run.of_.Status().reason_code, "HOLD_SLOTS_FULL");
      continue;
    }
    EXPECT_FALSE(run.builder_.over());
    ASSERT_NE(run.builder_.active(), nullptr);
    EXPECT_EQ(run.builder_.active()->slot, nullptr);
    const std::shared_ptr<ActiveVolume> dropped = run.builder_.TakeActive();
    ASSERT_THAT(run.builder_.End(*dropped), IsOk());
    EXPECT_EQ(run.of_.Status().volumes_dropped, 1);
    EXPECT_EQ(run.of_.Events().back().text, "volume DROPPED");
    EXPECT_EQ(run.of_.store.List().size(), 1u);
  }
}

TEST(VolumeBuilderTest, AStopLetsNoFurtherVolumeBegin) {
  BuilderRun run;
  run.of_.life.StopAtVolume(Reason::kStopped, "asked");
  ASSERT_THAT(run.builder_.Begin(0, {}), IsOk());
  EXPECT_TRUE(run.builder_.over());
  EXPECT_EQ(run.builder_.active(), nullptr);
}

TEST(VolumeBuilderTest, AnUpdateIsTakenBetweenTwoVolumes) {
  BuilderRun run;
  ASSERT_THAT(run.builder_.Begin(0, {}), IsOk());
  const float before = run.of_.scan.chain.level_hi;
  ResolvedScan updated = run.of_.scan;
  updated.chain.level_hi = before + 5;
  ASSERT_THAT(run.updates_.Offer(updated), IsOk());
  run.Add(0, 32);
  EXPECT_EQ(run.End().status.level_hi, before);
  ASSERT_THAT(run.builder_.Begin(1, {}), IsOk());
  EXPECT_EQ(run.builder_.active()->status.level_hi, before + 5);
  EXPECT_EQ(run.of_.scan.chain.level_hi, before + 5);
  EXPECT_EQ(run.lanes_.TakeReplaced().size(), 1u);
  run.Add(0, 32);
  EXPECT_NE(run.ended_->status.origin, run.builder_.active()->status.origin);
  run.End();
}

TEST(VolumeBuilderTest, WhatACountedScanNeverSawIsLost) {
  BuilderRun run;
  ASSERT_THAT(run.builder_.Begin(0, {}), IsOk());
  run.Add(0, 32);
  run.End();
  run.builder_.CountLost();
  EXPECT_EQ(run.of_.Status().volumes_dropped, 2);
  EXPECT_EQ(run.of_.progress.missing_ascans, 2 * 24);
}

TEST(VolumeBuilderTest, AFailedVolumeSaysWhyTheScanEnds) {
  BuilderRun run;
  ASSERT_THAT(run.builder_.Begin(0, {}), IsOk());
  run.of_.life.Cancel(Reason::kCancelled, "by a client");
  run.ended_ = run.builder_.TakeActive();
  run.builder_.Fail(*run.ended_);
  const auto status = run.of_.store.Get(run.ended_->status.name);
  EXPECT_EQ(status->state, VolumeState::kFailed);
  EXPECT_EQ(status->reason, "by a client");
}

}  // namespace
}  // namespace octavo::engine
