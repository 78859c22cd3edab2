// Missing, short, duplicate and out-of-range records: the session counts them, and no volume
// contains stale data.

#include <cmath>
#include <numbers>

#include "gpu/device/device.h"
#include "server/model/resolved_scan.h"
#include "server/pattern/plan.h"
#include "server/scan/resolve_scan.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_runner.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsOk;
using ::testing::ElementsAre;

constexpr int64_t kSamples = 64, kBin = 5;

/// Records [first, first + count) of the scan, with the amplitude `scale` × (1 + record number).
struct Piece {
  int64_t first, count;
  double scale = 1;
};

class ScriptedSource final : public Source {
 public:
  explicit ScriptedSource(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token) override {
    if (next_ == pieces_.size()) return SourceBlock{};
    // As many records as fit; the rest follows in the next block.
    Piece piece = pieces_[next_];
    piece.count = std::min(piece.count, max_records);
    pieces_[next_].first += piece.count;
    pieces_[next_].count -= piece.count;
    next_ += pieces_[next_].count == 0;
    auto* out = static_cast<float*>(slot);
    for (int64_t r = 0; r < piece.count; ++r) {
      const double amplitude = piece.scale * static_cast<double>(1 + piece.first + r);
      for (int64_t n = 0; n < kSamples; ++n) {
        *out++ = static_cast<float>(
            amplitude * std::cos(2 * std::numbers::pi * static_cast<double>(kBin * n) / kSamples));
      }
    }
    return SourceBlock{
        .first_record = piece.first, .records = piece.count, .acquired = clock_.Now()};
  }
  absl::StatusOr<SourceBlock> Skip(int64_t, std::stop_token) override {
    return absl::InternalError("this source waits");
  }
  bool CanWait() const override { return true; }

 private:
  const SystemClock clock_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

class PlacementSessionTest : public octavo::testing::BackendTest {
 protected:
  struct Outcome {
    ScanStatus scan;
    std::vector<VolumeStatus> volumes;
    std::vector<std::vector<float>> peaks;  // [volume][A-scan]: amplitude / 2 of its record
  };

  ResolvedScan Resolved(Pattern pattern) {
    const auto owned =
        std::make_unique<ScanSpec>();  // GCC 12 takes its variant for uninitialised on the stack
    ScanSpec& spec = *owned;
    spec.source.emplace<SimulatedSource>().as_fast_as_possible = true;
    spec.acquisition = {.samples_per_record = kSamples,
                        .raw_type = DType::kF32,
                        .raw_type_given = true,
                        .records_per_block = 200};
    spec.pattern = std::move(pattern);
    spec.processing.background = BackgroundMode::kNone;
    spec.processing.k_mode = KMode::kNone;
    spec.processing.window = 1;  // rect
    spec.processing.value = ValueKind::kMagnitude;
    spec.processing.dtype = DType::kF32;
    spec.processing.dtype_given = true;
    auto resolved = ResolveScan(spec, {});
    EXPECT_THAT(resolved.status(), IsOk());
    return *std::move(resolved);
  }

  Outcome Run(const ResolvedScan& scan, std::vector<Piece> pieces) {
    const SystemClock clock;
    Ledger ledger({int64_t{1} << 30});
    VolumeStore store(&ledger, &clock);
    Publisher publisher(&clock);
    Outcome outcome;
    outcome.scan =
        testing::RunToTheEnd("scans/x", scan, std::make_unique<ScriptedSource>(std::move(pieces)),
                             {.device = &device_,
                              .ledger = &ledger,
                              .store = &store,
                              .publisher = &publisher,
                              .clock = &clock});
    outcome.volumes = store.List();
    for (const VolumeStatus& volume : outcome.volumes) {
      const auto pinned = store.Hold(volume.name, HoldKind::kDevice);
      EXPECT_THAT(pinned.status(), IsOk());
      const auto all =
          Download<float>(pinned->slot->volume,
                          static_cast<size_t>(volume.shape[0] * volume.shape[1] * volume.shape[2]));
      auto& peaks = outcome.peaks.emplace_back();
      for (int64_t a = 0; a < volume.shape[0] * volume.shape[1]; ++a)
        peaks.push_back(all[static_cast<size_t>(a * volume.shape[2] + kBin)]);
      // Every depth sample of a missing A-scan has the fill value.
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(std::isnan(all[i]), std::isnan(peaks[i / static_cast<size_t>(volume.shape[2])]));
    }
    return outcome;
  }

  /// Expected A-scans if the records of `present` (volume, record) arrived, computed from the plan
  /// alone.
  static std::vector<float> Expected(const Pattern& pattern, int64_t volume, int64_t volume_records,
                                     const std::vector<Piece>& present) {
    const PatternPlan plan = *MakePlan(pattern, 0);
    std::vector<float> peaks(static_cast<size_t>(plan.rows * plan.columns), std::nanf(""));
    for (const Piece& piece : present) {
      for (int64_t r = piece.first; r < piece.first + piece.count; ++r) {
        if (r / volume_records != volume) continue;
        const int32_t ascan = plan.Of(volume).placement[static_cast<size_t>(r % volume_records)];
        if (ascan >= 0) peaks[static_cast<size_t>(ascan)] = static_cast<float>(1 + r) / 2;
      }
    }
    return peaks;
  }
  static void ExpectPeaks(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t a = 0; a < got.size(); ++a) {
      EXPECT_TRUE(std::isnan(want[a]) ? std::isnan(got[a])
                                      : std::abs(got[a] - want[a]) < 1e-3f * want[a])
          << a << ": " << got[a] << ", not " << want[a];
    }
  }

  static std::vector<Pattern> Patterns() {
    Pattern raster{.ascans_per_bscan = 6,
                   .bscans_per_volume = 4,
                   .volumes = 2,
                   .bidirectional = true,
                   .flyback_records = 2};
    Pattern repeated = raster;
    repeated.kind = PatternKind::kRepeatedRaster;
    repeated.repeat_count = 2;
    repeated.repeat_period = 2;
    Pattern back = raster;
    back.bidirectional_volumes = true;
    Pattern spiral{.ascans_per_bscan = 8,
                   .bscans_per_volume = 4,
                   .volumes = 2,
                   .volume_flyback_records = 3,
                   .kind = PatternKind::kSpiral};
    spiral.radius_end_mm = 1;
    return {raster, repeated, back, spiral};
  }
};

TEST_P(PlacementSessionTest, WholeVolumesHoldEveryRecordInItsPlace) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = Resolved(pattern);
    const std::vector<Piece> pieces = {{0, 7}, {7, 13}, {20, 100}, {120, 100}};
    const Outcome outcome = Run(scan, pieces);
    ASSERT_EQ(outcome.volumes.size(), 2u);
    for (int64_t v = 0; v < 2; ++v) {
      EXPECT_TRUE(outcome.volumes[static_cast<size_t>(v)].complete);
      ExpectPeaks(outcome.peaks[static_cast<size_t>(v)],
                  Expected(scan.spec.pattern, v, scan.volume_records, pieces));
    }
    EXPECT_EQ(outcome.scan.duplicate_records, 0);
    EXPECT_EQ(outcome.scan.out_of_range_records, 0);
  }
}

TEST_P(PlacementSessionTest, AGapIsMissingNotStale) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = Resolved(pattern);
    const std::vector<Piece> pieces = {{0, 9}, {17, 10}, {40, 180}};
    const Outcome outcome = Run(scan, pieces);
    ASSERT_EQ(outcome.volumes.size(), 2u);
    int64_t missing = 0;
    for (int64_t v = 0; v < 2; ++v) {
      const VolumeStatus& volume = outcome.volumes[static_cast<size_t>(v)];
      const auto want = Expected(scan.spec.pattern, v, scan.volume_records, pieces);
      ExpectPeaks(outcome.peaks[static_cast<size_t>(v)], want);
      const auto holes =
          std::count_if(want.begin(), want.end(), [](float p) { return std::isnan(p); });
      EXPECT_EQ(volume.missing_ascans, holes);
      EXPECT_EQ(volume.complete, holes == 0);
      int64_t counted = 0;
      for (const auto& [first, count] : volume.missing) {
        for (int64_t a = first; a < first + count; ++a)
          EXPECT_TRUE(std::isnan(want[static_cast<size_t>(a)]));
        counted += count;
      }
      EXPECT_EQ(counted, holes);
      missing += holes;
    }
    EXPECT_GT(missing, 0);
    EXPECT_EQ(outcome.scan.missing_ascans, missing);
  }
}

TEST_P(PlacementSessionTest, AShortRunEndsWithAShortVolume) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = Resolved(pattern);
    const std::vector<Piece> pieces = {{0, scan.volume_records + 5}};
    const Outcome outcome = Run(scan, pieces);
    ASSERT_EQ(outcome.volumes.size(), 2u);
    EXPECT_TRUE(outcome.volumes[0].complete);
    EXPECT_FALSE(outcome.volumes[1].complete);
    EXPECT_EQ(outcome.scan.reason_code, Reason::kSourceEnded);
    ExpectPeaks(outcome.peaks[1], Expected(scan.spec.pattern, 1, scan.volume_records, pieces));
    EXPECT_EQ(outcome.volumes[1].missing_ascans, scan.shape[0] * scan.shape[1] - 5);
  }
}

TEST_P(PlacementSessionTest, DoubledAndLateRecordsAreCountedAndTouchNothing) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = Resolved(pattern);
    const int64_t n = scan.volume_records;
    // Again with another amplitude: whole blocks, an overlap, a block after its volume has ended,
    // and a block of a gap that was already declared missing.
    const Outcome outcome = Run(
        scan,
        {{0, 10}, {0, 10, 99}, {5, 10, 1}, {20, 5}, {16, 4, 99}, {25, n - 25}, {3, 4, 99}, {n, n}});
    const std::vector<Piece> first_of_each = {{0, 15}, {20, 5}, {25, n - 25}, {n, n}};
    ASSERT_EQ(outcome.volumes.size(), 2u);
    for (int64_t v = 0; v < 2; ++v)
      ExpectPeaks(outcome.peaks[static_cast<size_t>(v)],
                  Expected(scan.spec.pattern, v, n, first_of_each));
    EXPECT_EQ(outcome.scan.duplicate_records, 10 + 5 + 4 + 4);
    EXPECT_EQ(outcome.scan.out_of_range_records, 0);
    EXPECT_TRUE(outcome.volumes[1].complete);
  }
}

TEST_P(PlacementSessionTest, RecordsOfNoVolumeAreCountedAndTouchNothing) {
  for (const Pattern& pattern : Patterns()) {
    const ResolvedScan scan = Resolved(pattern);
    const int64_t n = scan.volume_records;
    const Outcome outcome = Run(scan, {{-6, 6, 99},
                                       {-3, 13, 1},
                                       {2 * n, 7, 99},
                                       {int64_t{1} << 60, 5, 99},
                                       {10, n - 10},
                                       {n, n}});
    ASSERT_EQ(outcome.volumes.size(), 2u);
    for (int64_t v = 0; v < 2; ++v) {
      EXPECT_TRUE(outcome.volumes[static_cast<size_t>(v)].complete);
      ExpectPeaks(outcome.peaks[static_cast<size_t>(v)],
                  Expected(scan.spec.pattern, v, n, {{0, 2 * n}}));
    }
    EXPECT_EQ(outcome.scan.out_of_range_records, 6 + 3 + 7 + 5);
    EXPECT_EQ(outcome.scan.duplicate_records, 0);
    EXPECT_EQ(outcome.scan.state, ScanState::kDone);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PlacementSessionTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
