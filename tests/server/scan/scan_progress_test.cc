#include "server/scan/scan_progress.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/fake_clock.h"

namespace octavo::scan {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class ScanProgressTest : public ::testing::Test {
 protected:
  model::ScanStatus Status() {
    model::ScanStatus status;
    progress_.AddTo(&status);
    return status;
  }
  int64_t Now() const { return clock_.Now().monotonic_ns; }

  octavo::testing::FakeClock clock_;
  ScanProgress progress_{&clock_};
};

TEST_F(ScanProgressTest, BeforeItsFirstRecordAScanHasNone) {
  const model::ScanStatus status = Status();
  EXPECT_EQ(status.records, 0);
  EXPECT_EQ(status.volumes_done, 0);
  EXPECT_EQ(status.current_volume, model::ScanStatus().current_volume);
  EXPECT_EQ(status.records_per_second, 0);
  EXPECT_EQ(status.volumes_per_second, 0);
  EXPECT_TRUE(progress_.Timings().stages.empty());
}

TEST_F(ScanProgressTest, RecordsAndVolumesAreCountedWithTheirRates) {
  progress_.Begin(Now());
  clock_.Advance(0.5);
  progress_.BlockThrough(Now(), 300, 0.25);
  clock_.Advance(0.5);
  progress_.BlockThrough(Now(), 200, 0.5);
  progress_.VolumeSealed(Now(), 0.125);
  model::ScanStatus status = Status();
  EXPECT_EQ(status.records, 500);
  EXPECT_EQ(status.volumes_done, 1);
  EXPECT_DOUBLE_EQ(status.records_per_second, 500);
  EXPECT_DOUBLE_EQ(status.volumes_per_second, 1);
  clock_.Advance(5);
  status = Status();
  EXPECT_EQ(status.records_per_second, 0) << "nothing has come for a while";
  EXPECT_EQ(status.records, 500);
}

TEST_F(ScanProgressTest, TheTimesOfBlocksAndVolumes) {
  progress_.BlockTaken(0.5);
  progress_.BlockTaken(1.5);
  progress_.BlockThrough(Now(), 10, 0.25);
  progress_.BlockThrough(Now(), 10, -1);  // released no records of the ring
  progress_.BlockThrough(Now(), 10, 0);
  progress_.VolumeSealed(Now(), 3);
  ScanTimings timings = progress_.Timings();
  EXPECT_EQ(timings.stages["wait"].count, 2);
  EXPECT_DOUBLE_EQ(timings.stages["wait"].sum, 2);
  EXPECT_EQ(timings.stages["process"].count, 2);
  EXPECT_DOUBLE_EQ(timings.stages["process"].sum, 0.25);
  EXPECT_EQ(timings.volume_latency.count, 1);
  EXPECT_DOUBLE_EQ(timings.volume_latency.sum, 3);
}

TEST_F(ScanProgressTest, TheStagesOfAVolumeAreTheTimesBetweenItsStamps) {
  progress_.CountStages({.taken_ns = 1 * kSecond,
                         .uploaded_ns = 3 * kSecond,
                         .processed_ns = 7 * kSecond,
                         .on_host_ns = 15 * kSecond,
                         .seen_ns = 20 * kSecond,
                         .sealed_ns = 31 * kSecond});
  ScanTimings timings = progress_.Timings();
  EXPECT_EQ(timings.stages.size(), 3u);
  EXPECT_DOUBLE_EQ(timings.stages["upload"].sum, 2);
  EXPECT_DOUBLE_EQ(timings.stages["download"].sum, 8);
  EXPECT_DOUBLE_EQ(timings.stages["publish"].sum, 16);
}

TEST_F(ScanProgressTest, TheCurrentVolumeUntilTheEnd) {
  progress_.VolumeBegun(4);
  progress_.VolumeAt(0.75);
  EXPECT_EQ(progress_.current_volume(), 4);
  EXPECT_EQ(Status().current_volume, 4);
  EXPECT_DOUBLE_EQ(Status().current_fraction, 0.75);
  progress_.VolumeSealed(Now(), 0);
  EXPECT_EQ(Status().current_fraction, 0);
  EXPECT_EQ(Status().current_volume, 4);
  progress_.VolumeBegun(5);
  progress_.VolumeAt(0.5);
  progress_.End();
  EXPECT_EQ(Status().current_volume, -1);
  EXPECT_EQ(Status().current_fraction, 0);
  EXPECT_EQ(progress_.current_volume(), -1);
}

TEST_F(ScanProgressTest, WhatIsLostAndWhatIsClippedAddsUp) {
  progress_.VolumesDropped(2);
  progress_.VolumesDropped(1);
  progress_.CountVoxels(100, 3, 4);
  progress_.CountVoxels(200, 5, 6);
  progress_.missing_ascans += 24;
  ++progress_.blocks_dropped;
  const model::ScanStatus status = Status();
  EXPECT_EQ(status.volumes_dropped, 3);
  EXPECT_EQ(status.voxels, 300);
  EXPECT_EQ(status.clipped_below, 8);
  EXPECT_EQ(status.clipped_above, 10);
  EXPECT_EQ(status.missing_ascans, 24);
  EXPECT_EQ(status.blocks_dropped, 1);
}

// The count of the device is a running total, and counts of several volumes may come out of order.
TEST_F(ScanProgressTest, TheFirstRecordsThatAreNotFiniteAreToldOnce) {
  EXPECT_FALSE(progress_.CountNonFinite(0));
  EXPECT_TRUE(progress_.CountNonFinite(5));
  EXPECT_FALSE(progress_.CountNonFinite(9));
  EXPECT_FALSE(progress_.CountNonFinite(7));
  EXPECT_EQ(Status().non_finite_records, 9);
}

}  // namespace
}  // namespace octavo::scan
