// One scan over several devices: it makes the same volumes as on one device, for every pattern and
// any missing records. If a device is lost, the others stay usable.

#include "server/pattern/plan.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/seed.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using octavo::testing::SeveralDevices;
using testing::ExpectSame;
using testing::KnownRecords;
using testing::KnownSource;
using testing::ResolvedKnown;
using testing::RunOutcome;
using testing::SessionRun;

/// Delivers the records of `inner`, but loses some.
class LossySource final : public Source {
 public:
  LossySource(KnownRecords records, std::vector<std::pair<int64_t, int64_t>> pieces)
      : records_(records), pieces_(std::move(pieces)) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token) override {
    if (at_ == pieces_.size()) return SourceBlock{};
    auto& [first, count] = pieces_[at_];
    const SourceBlock block{
        .first_record = first, .records = std::min(count, max_records), .acquired = clock_.Now()};
    for (int64_t r = 0; r < block.records; ++r)
      records_.Write(first + r, static_cast<uint16_t*>(slot) + r * records_.samples());
    first += block.records;
    count -= block.records;
    at_ += count == 0;
    return block;
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override {
    return absl::InternalError("this source waits");
  }
  bool CanWait() const override { return true; }

 private:
  const SystemClock clock_;
  const KnownRecords records_;
  std::vector<std::pair<int64_t, int64_t>> pieces_;
  size_t at_ = 0;
};

class SpreadSessionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    devices_ = SeveralDevices(GetParam(), GetParam() == "host" ? 3 : 2);
    if (devices_.empty()) GTEST_SKIP() << "the machine has one device of this backend";
  }
  std::vector<Device*> Devices(size_t n) {
    std::vector<Device*> some;
    for (size_t d = 0; d < n; ++d) some.push_back(devices_[d].get());
    return some;
  }
  std::unique_ptr<Source> Records(const ResolvedScan& scan) {
    return std::make_unique<KnownSource>(records_, scan.volume_records * 2, nullptr, nullptr);
  }

  static std::vector<Pattern> Patterns() {
    Pattern raster{.ascans_per_bscan = 12,
                   .bscans_per_volume = 11,
                   .volumes = 2,
                   .bidirectional = true,
                   .flyback_records = 3};
    Pattern dense{.ascans_per_bscan = 16, .bscans_per_volume = 10, .volumes = 2};
    Pattern repeated = raster;
    repeated.kind = PatternKind::kRepeatedRaster;
    repeated.repeat_count = 2;
    repeated.repeat_period = 2;
    repeated.bscans_per_volume = 6;
    Pattern averaged = repeated;
    averaged.repeat_strategy = RepeatStrategy::kAverage;
    Pattern back = raster;
    back.bidirectional_volumes = true;
    Pattern spiral{.ascans_per_bscan = 16,
                   .bscans_per_volume = 9,
                   .volumes = 2,
                   .volume_flyback_records = 5,
                   .kind = PatternKind::kSpiral};
    spiral.radius_end_mm = 1;
    return {raster, dense, repeated, averaged, back, spiral};
  }

  std::vector<std::unique_ptr<Device>> devices_;
  const KnownRecords records_{octavo::testing::FreshSeed(), 64};
};

TEST_P(SpreadSessionTest, VolumesAreThoseOfOneDevice) {
  for (const Pattern& pattern : Patterns()) {
    for (const int64_t block : {7, 50, 130}) {
      const ResolvedScan scan = ResolvedKnown(
          pattern, [&](ScanSpec& spec) { spec.acquisition.records_per_block = block; });
      const RunOutcome one = SessionRun::Run(Devices(1), scan, Records(scan));
      ASSERT_EQ(one.voxels.size(), 2u);
      for (size_t n = 2; n <= devices_.size(); ++n) {
        SCOPED_TRACE(absl::StrCat(Name(pattern.kind), ", blocks of ", block, ", ", n, " devices"));
        const RunOutcome several = SessionRun::Run(Devices(n), scan, Records(scan));
        EXPECT_EQ(several.scan.state, ScanState::kDone) << several.scan.reason;
        ExpectSame(several, one);
        ASSERT_EQ(several.scan.spread_devices.size(), n);
        EXPECT_EQ(several.scan.spread_devices[1], "devices/1");
        ASSERT_FALSE(several.volumes.empty());
        EXPECT_EQ(several.volumes[0].device, "devices/0");
        EXPECT_EQ(several.volumes[0].spread_devices, several.scan.spread_devices);
        EXPECT_TRUE(one.volumes[0].spread_devices.empty());
      }
    }
  }
}

// Options that need a whole B-scan keep its beginning until the rest has arrived, on the device
// that has the B-scan.
TEST_P(SpreadSessionTest, BscanOptionsSeeWholeBscans) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = ResolvedKnown(pattern, [](ScanSpec& spec) {
      spec.acquisition.records_per_block = 7;
      spec.processing.background = BackgroundMode::kBscan;
      spec.processing.fixed_pattern_noise = FixedPatternNoise::kMean;
    });
    SCOPED_TRACE(Name(pattern.kind));
    ExpectSame(SessionRun::Run(Devices(2), scan, Records(scan)),
               SessionRun::Run(Devices(1), scan, Records(scan)));
  }
}

TEST_P(SpreadSessionTest, WhatIsLostIsMissingInTheSamePlaces) {
  for (const bool whole_bscans : {false, true}) {
    for (const Pattern& pattern : Patterns()) {
      const ResolvedScan scan = ResolvedKnown(pattern, [&](ScanSpec& spec) {
        spec.acquisition.records_per_block = 23;
        if (whole_bscans) spec.processing.background = BackgroundMode::kBscan;
      });
      const int64_t n = scan.volume_records;
      const std::vector<std::pair<int64_t, int64_t>> pieces = {
          {0, 31}, {40, 5}, {20, 8}, {77, n - 90}, {n + 4, 60}, {n + 80, n - 80}};
      SCOPED_TRACE(absl::StrCat(Name(pattern.kind), whole_bscans ? ", B-scans as a whole" : ""));
      const RunOutcome one =
          SessionRun::Run(Devices(1), scan, std::make_unique<LossySource>(records_, pieces));
      const RunOutcome two =
          SessionRun::Run(Devices(2), scan, std::make_unique<LossySource>(records_, pieces));
      ASSERT_EQ(one.voxels.size(), 2u);
      if (!pattern.averaged())
        // For an average, one pass that arrived is enough.
        EXPECT_GT(one.volumes[0].missing_ascans, 0);
      ExpectSame(two, one);
      EXPECT_EQ(two.scan.duplicate_records, one.scan.duplicate_records);
    }
  }
}

// Volumes that stay on the devices that compute them.
ResolvedScan Striped(ResolvedScan scan, size_t devices) {
  scan.stripe_devices = static_cast<int64_t>(devices);
  return scan;
}

TEST_P(SpreadSessionTest, StripedVolumesAreThoseOfOneDevice) {
  for (const Pattern& pattern : Patterns()) {
    for (const int64_t block : {7, 50, 130}) {
      for (const bool whole_bscans : {false, true}) {
        const ResolvedScan scan = ResolvedKnown(pattern, [&](ScanSpec& spec) {
          spec.acquisition.records_per_block = block;
          spec.spread = {.given = true, .striped = true};
          if (whole_bscans) spec.processing.background = BackgroundMode::kBscan;
        });
        const RunOutcome one = SessionRun::Run(Devices(1), scan, Records(scan));
        ASSERT_EQ(one.voxels.size(), 2u);
        EXPECT_EQ(one.volumes[0].stripe_bscans, 0);
        for (size_t n = 2; n <= devices_.size(); ++n) {
          SCOPED_TRACE(absl::StrCat(Name(pattern.kind), ", blocks of ", block, ", ", n, " devices",
                                    whole_bscans ? ", B-scans as a whole" : ""));
          const RunOutcome several = SessionRun::Run(Devices(n), Striped(scan, n), Records(scan));
          EXPECT_EQ(several.scan.state, ScanState::kDone) << several.scan.reason;
          ExpectSame(several, one);
          ASSERT_FALSE(several.volumes.empty());
          EXPECT_GT(several.volumes[0].stripe_bscans, 0);
          EXPECT_EQ(several.volumes[0].spread_devices.size(), n);
        }
      }
    }
  }
}

// Equal to a raster without a plan: striped scans use a table where other scans use a rule.
TEST_P(SpreadSessionTest, ATableInsteadOfTheRuleChangesNothing) {
  for (const bool whole_bscans : {false, true}) {
    const auto resolved = [&](bool striped) {
      return ResolvedKnown(Patterns()[0], [&](ScanSpec& spec) {
        spec.spread = {.given = striped, .striped = striped};
        if (whole_bscans) spec.processing.background = BackgroundMode::kBscan;
      });
    };
    const ResolvedScan rule = resolved(false), table = resolved(true);
    ASSERT_EQ(rule.volume_records, table.volume_records);
    ExpectSame(SessionRun::Run(Devices(2), Striped(table, 2), Records(table)),
               SessionRun::Run(Devices(1), rule, Records(rule)));
  }
}

TEST_P(SpreadSessionTest, WhatIsLostOfAStripedVolumeIsMissingInTheSamePlaces) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = ResolvedKnown(pattern, [&](ScanSpec& spec) {
      spec.acquisition.records_per_block = 23;
      spec.spread = {.given = true, .striped = true};
    });
    const int64_t n = scan.volume_records;
    const std::vector<std::pair<int64_t, int64_t>> pieces = {
        {0, 31}, {40, 5}, {20, 8}, {77, n - 90}, {n + 4, 60}, {n + 80, n - 80}};
    SCOPED_TRACE(Name(pattern.kind));
    ExpectSame(SessionRun::Run(Devices(2), Striped(scan, 2),
                               std::make_unique<LossySource>(records_, pieces)),
               SessionRun::Run(Devices(1), scan, std::make_unique<LossySource>(records_, pieces)));
  }
}

TEST_P(SpreadSessionTest, BoxesOfStripedVolumesAndTheirMemory) {
  const size_t n = devices_.size();
  Pattern pattern = Patterns()[1];
  pattern.bscans_per_volume = 60;  // large compared with the fixed memory of each part
  const ResolvedScan scan = Striped(ResolvedKnown(pattern,
                                                  [](ScanSpec& spec) {
                                                    spec.acquisition.records_per_block = 50;
                                                    spec.spread = {.given = true, .striped = true};
                                                  }),
                                    n);
  SessionRun run(Devices(n));
  ASSERT_THAT(run.Start(scan, Records(scan)), IsOk());
  const RunOutcome outcome = run.Outcome();
  ASSERT_EQ(outcome.voxels.size(), 2u);
  const VolumeStatus& volume = outcome.volumes[0];
  std::mt19937 random(octavo::testing::FreshSeed());
  {
    ASSERT_OK_AND_ASSIGN(const VolumeHold pinned, run.store().Hold(volume.name, HoldKind::kMemory));
    EXPECT_THAT(
        run.store().Hold(volume.name, HoldKind::kDevice),
        octavo::testing::IsError(absl::StatusCode::kFailedPrecondition, "striped over devices/0"));
    ASSERT_EQ(pinned.slot->stripes.size(), n);
    for (int i = 0; i < 40; ++i) {
      Box3 box;
      for (int d = 0; d < 3; ++d) {
        box.start[d] = static_cast<int64_t>(random() % static_cast<uint64_t>(volume.shape[d]));
        box.count[d] = 1 + static_cast<int64_t>(
                               random() % static_cast<uint64_t>(volume.shape[d] - box.start[d]));
      }
      const auto got = run.ReadBox(pinned, box);
      size_t at = 0;
      for (int64_t y = box.start[0]; y < box.start[0] + box.count[0]; ++y) {
        for (int64_t x = box.start[1]; x < box.start[1] + box.count[1]; ++x) {
          for (int64_t z = box.start[2]; z < box.start[2] + box.count[2]; ++z) {
            ASSERT_EQ(got[at++], outcome.voxels[0][static_cast<size_t>(
                                     (y * volume.shape[1] + x) * volume.shape[2] + z)])
                << y << " " << x << " " << z;
          }
        }
      }
    }
  }
  // Every device has its part and frees it.
  for (size_t d = 0; d < n; ++d) {
    EXPECT_GT(run.ledger().UseOf(static_cast<int>(d)).held, 0) << d;
    EXPECT_EQ(run.ledger().UseOf(static_cast<int>(d)).reserved, 0) << d;
  }
  EXPECT_LT(run.ledger().UseOf(1).held, 2 * scan.volume_bytes);
  for (const VolumeStatus& held : outcome.volumes)
    ASSERT_THAT(run.store().Discard(held.name, Reason::kDiscarded, "test").status(), IsOk());
  for (size_t d = 0; d < n; ++d)
    EXPECT_EQ(run.ledger().UseOf(static_cast<int>(d)).granted(), 0) << d;
}

// Random groups and windows, shorter or longer than a B-scan, in blocks of random lengths, with
// gaps: the devices exchange their sums.
TEST_P(SpreadSessionTest, ARollingBackgroundIsThatOfOneDevice) {
  std::mt19937 random(octavo::testing::FreshSeed());
  for (const Pattern& pattern : Patterns()) {
    for (int turn = 0; turn < 6; ++turn) {
      const auto resolved = [&](bool striped, int64_t group, int64_t window, int64_t block) {
        return ResolvedKnown(pattern, [&](ScanSpec& spec) {
          spec.acquisition.records_per_block = block;
          spec.processing.background = BackgroundMode::kRolling;
          spec.processing.background_group_records = group;
          spec.processing.background_window_records = window;
          if (turn % 3 == 2) spec.processing.fixed_pattern_noise = FixedPatternNoise::kMean;
          if (striped) spec.spread = {.given = true, .striped = true};
        });
      };
      const int64_t n = resolved(false, 0, 0, 50).volume_records;
      const int64_t group =
          turn == 0
              ? 0
              : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(turn % 2 == 0 ? n : 40));
      const int64_t window = turn % 2 == 0 ? 0 : 1 + static_cast<int64_t>(random() % 300);
      std::vector<std::pair<int64_t, int64_t>> pieces;
      for (int64_t at = 0; at < 2 * n;) {
        const int64_t count =
            std::min<int64_t>(2 * n - at, 1 + static_cast<int64_t>(random() % 60));
        if (turn < 2 || random() % 9 > 0) pieces.emplace_back(at, count);
        at += count;
      }
      SCOPED_TRACE(absl::StrCat(Name(pattern.kind), ", group ", group, ", window ", window));
      const RunOutcome one = SessionRun::Run(Devices(1), resolved(false, group, window, 50),
                                             std::make_unique<LossySource>(records_, pieces));
      ASSERT_FALSE(one.voxels.empty());
      for (size_t d = 1; d <= devices_.size(); ++d) {
        for (const bool striped : {false, true}) {
          if (striped && d == 1) continue;
          const int64_t block = 1 + static_cast<int64_t>(random() % 130);
          SCOPED_TRACE(absl::StrCat(d, " devices, blocks of ", block, striped ? ", striped" : ""));
          const ResolvedScan scan = resolved(striped, group, window, block);
          const RunOutcome several =
              SessionRun::Run(Devices(d), striped ? Striped(scan, d) : scan,
                              std::make_unique<LossySource>(records_, pieces));
          EXPECT_EQ(several.scan.state, ScanState::kDone) << several.scan.reason;
          ExpectSame(several, one);
        }
      }
    }
  }
}

// A window that reaches back beyond the update contains the records before it.
TEST_P(SpreadSessionTest, UpdatesReachEveryDeviceAtOneVolume) {
  Pattern pattern = Patterns()[1];
  pattern.volumes = 6;
  for (const int64_t window : {-1, 0, 70, 400}) {
    const auto change = [&](double a2) {
      return [=](ScanSpec& spec) {
        spec.processing.dispersion_a2 = a2;
        if (window < 0) return;
        spec.processing.background = BackgroundMode::kRolling;
        spec.processing.background_window_records = window;
      };
    };
    const ResolvedScan before = ResolvedKnown(pattern, change(1e-3)),
                       after = ResolvedKnown(pattern, change(-2e-3));
    const auto source = [&](std::function<void(int64_t)> at) {
      return std::make_unique<KnownSource>(records_, before.volume_records * 6, nullptr,
                                           std::move(at));
    };
    const RunOutcome with_old = SessionRun::Run(Devices(1), before, source(nullptr));
    const RunOutcome with_new = SessionRun::Run(Devices(1), after, source(nullptr));
    for (size_t devices = 1; devices <= 2; ++devices) {
      SCOPED_TRACE(absl::StrCat("window ", window, ", ", devices, " devices"));
      SessionRun run(Devices(devices));
      bool updated = false;
      ASSERT_THAT(
          run.Start(before, source([&](int64_t next) {
                      if (updated || next < 2 * before.volume_records + 30) return;
                      updated = true;
                      while (run.session() == nullptr || run.session()->Status().volumes_done == 0)
                        std::this_thread::yield();
                      EXPECT_THAT(run.session()->Update(after), IsOk());
                    })),
          IsOk());
      const RunOutcome spread = run.Outcome();
      ASSERT_EQ(spread.voxels.size(), 6u);
      int changed = -1;
      for (size_t v = 0; v < 6; ++v) {
        const bool old = spread.voxels[v] == with_old.voxels[v];
        EXPECT_NE(old, spread.voxels[v] == with_new.voxels[v])
            << "volume " << v << " is made with one processing";
        if (!old && changed < 0) changed = static_cast<int>(v);
        EXPECT_EQ(old, changed < 0) << "and not back again";
      }
      EXPECT_GE(changed, 1) << "the update came through, in the middle";
    }
  }
}

TEST_P(SpreadSessionTest, ALostDeviceEndsTheScanAndAllMemoryComesBack) {
  for (const size_t lost : {size_t{0}, size_t{1}}) {
    auto devices = SeveralDevices(GetParam());
    Pattern pattern = Patterns()[1];
    pattern.volumes = 200;
    const ResolvedScan scan = ResolvedKnown(pattern, [](ScanSpec& spec) {
      spec.retention.mode = RetentionMode::kLive;
      spec.retention.hold_slots = 2;
    });
    {
      SessionRun run({devices[0].get(), devices[1].get()});
      auto source = std::make_unique<KnownSource>(
          records_, scan.volume_records * 200, nullptr, [&](int64_t next) {
            if (next >= 3 * scan.volume_records) devices[lost]->InjectFault("the cable was pulled");
          });
      ASSERT_THAT(run.Start(scan, std::move(source)), IsOk());
      const ScanStatus status = run.WaitForTheEnd();
      EXPECT_EQ(status.state, ScanState::kFailed);
      EXPECT_EQ(status.reason_code, Reason::kDeviceLost);
      EXPECT_NE(status.reason.find(DeviceName(static_cast<int>(lost))), std::string::npos)
          << status.reason;
      EXPECT_NE(status.reason.find("pulled"), std::string::npos) << status.reason;
      EXPECT_EQ(run.ledger().UseOf(1).reserved, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SpreadSessionTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
