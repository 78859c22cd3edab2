// Held raw spectra. The tests check which records are kept, and that reprocessing them gives, bit
// for bit, the volumes that a scan with that processing makes from the same records.

#include "server/processing/replay_records.h"

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "server/pattern/plan.h"
#include "server/processing/raw_records.h"
#include "server/processing/resolve_processing.h"
#include "server/scan/resolve_scan.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/rooms.h"
#include "tests/support/scan/session_fixture.h"
#include "tests/support/scan/session_runner.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;

constexpr int64_t kSamples = 64;

/// Records [first, first + count) of the scan, delivered at most a block at a time.
struct Piece {
  int64_t first, count;
};

uint16_t SampleOf(int64_t record, int64_t j) {
  auto x = static_cast<uint32_t>(record * kSamples + j) * 0x9E3779B9u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  return static_cast<uint16_t>((x ^ (x >> 15)) & 0xFFF);
}

class ScriptedSource final : public Source {
 public:
  explicit ScriptedSource(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
  absl::StatusOr<SourceBlock> Next(void* slot, int64_t max_records, std::stop_token) override {
    if (next_ == pieces_.size()) return SourceBlock{};
    Piece& piece = pieces_[next_];
    const SourceBlock block{.first_record = piece.first,
                            .records = std::min(piece.count, max_records),
                            .acquired = clock_.Now()};
    piece.first += block.records;
    piece.count -= block.records;
    next_ += piece.count == 0;
    auto* out = static_cast<uint16_t*>(slot);
    for (int64_t r = 0; r < block.records; ++r) {
      for (int64_t j = 0; j < kSamples; ++j) *out++ = SampleOf(block.first_record + r, j);
    }
    return block;
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

struct Volume {
  VolumeStatus status;
  std::vector<uint8_t> bytes;
};

class ReprocessTest : public octavo::testing::BackendTest {
 protected:
  static Processing Plain() {
    Processing p;
    p.background = BackgroundMode::kRolling;
    p.k_mode = KMode::kNone;
    p.value = ValueKind::kMagnitude;
    p.dtype = DType::kF32;
    p.dtype_given = true;
    return p;
  }
  /// Differs in every field: lengths, dtype, tables, background.
  static Processing Other() {
    Processing p;
    p.background = BackgroundMode::kRolling;
    p.k_mode = KMode::kPolynomial;
    p.k_polynomial = {0, 0.9, 0.1 / 63};
    p.k_interpolation = KInterpolation::kLanczos;
    p.dispersion_a2 = 1e-3;
    p.dispersion_a3 = -1e-5;
    p.fft_length = 128;
    p.depth = 48;
    p.dtype = DType::kU16;
    p.dtype_given = true;
    return p;
  }
  ResolvedScan Resolved(Pattern pattern, const Processing& processing, bool hold_raw,
                        int64_t block = 50) {
    const auto owned =
        std::make_unique<ScanSpec>();  // GCC 12 takes its variant for uninitialised on the stack
    ScanSpec& spec = *owned;
    spec.source.emplace<SimulatedSource>().as_fast_as_possible = true;
    spec.acquisition = {.samples_per_record = kSamples,
                        .raw_type = DType::kU16,
                        .raw_type_given = true,
                        .records_per_block = block};
    spec.pattern = std::move(pattern);
    spec.processing = processing;
    spec.retention.hold_raw = hold_raw;
    auto resolved = ResolveScan(spec, {});
    EXPECT_THAT(resolved.status(), IsOk());
    return *std::move(resolved);
  }
  static Pattern Raster(int64_t ascans, int64_t bscans, int64_t volumes) {
    Pattern p;
    p.ascans_per_bscan = ascans;
    p.bscans_per_volume = bscans;
    p.volumes = volumes;
    return p;
  }

  /// Runs the scan. Its volumes stay in store_.
  void Run(const ResolvedScan& scan, const std::string& name, std::vector<Piece> pieces) {
    testing::RunToTheEnd(name, scan, std::make_unique<ScriptedSource>(std::move(pieces)),
                         {.device = &device_,
                          .ledger = &ledger_,
                          .store = &store_,
                          .publisher = &publisher_,
                          .clock = &clock_});
  }
  std::vector<Volume> VolumesOf(const std::string& scan, bool raw) {
    std::vector<Volume> volumes;
    for (const VolumeStatus& status : store_.List()) {
      if (status.scan != scan || status.is_raw != raw || status.state != VolumeState::kHeld)
        continue;
      const auto pinned = store_.Hold(status.name, HoldKind::kDevice);
      EXPECT_THAT(pinned, IsOk());
      volumes.push_back(
          {.status = status, .bytes = Bytes(pinned->slot->volume.data(), status.bytes)});
    }
    return volumes;
  }
  std::vector<uint8_t> Bytes(const void* data, int64_t bytes) {
    std::vector<uint8_t> host(static_cast<size_t>(bytes));
    EXPECT_THAT(device_.CopyToHost(stream_.ref(), host.data(), data, bytes), IsOk());
    EXPECT_THAT(stream_.ref().Synchronize(), IsOk());
    return host;
  }
  Volume Reprocessed(const VolumeStatus& raw, const Processing& processing) {
    Volume volume;
    const auto scan = ResolveReprocess(raw, processing);
    EXPECT_THAT(scan, IsOk());
    if (!scan.ok()) return volume;
    DeviceBuffer out = Poisoned(scan->volume_bytes),
                 mip = Poisoned(scan->shape[0] * scan->shape[1] * 8);
    auto reprocessor = Reprocessor::Create(*scan, *store_.Hold(raw.name, HoldKind::kDevice),
                                           device_, stream_.ref());
    EXPECT_THAT(reprocessor, IsOk());
    int64_t blocks = 0;
    EXPECT_THAT((*reprocessor)
                    ->Run(stream_.ref(), {.volume = out.data(), .mip = mip.data()},
                          [&](int64_t done) {
                            EXPECT_EQ(done, blocks++);
                            return absl::OkStatus();
                          }),
                IsOk());
    volume.bytes = Bytes(out.data(), scan->volume_bytes);
    volume.status = DescribeReprocessed(raw, std::make_shared<const ResolvedScan>(*scan));
    EXPECT_EQ(blocks, (*reprocessor)->blocks());
    return volume;
  }
  /// Scans the records with `first` and reprocesses them with `second`; scans the same records with
  /// `second`; and expects equal volumes.
  void ExpectTheSame(const Pattern& pattern, const Processing& first, const Processing& second,
                     const std::vector<Piece>& pieces, int64_t block = 50) {
    Run(Resolved(pattern, first, /*hold_raw=*/true, block), "scans/raw", pieces);
    Run(Resolved(pattern, second, /*hold_raw=*/false, block), "scans/again", pieces);
    const auto raw = VolumesOf("scans/raw", true), plain = VolumesOf("scans/raw", false),
               wanted = VolumesOf("scans/again", false);
    ASSERT_EQ(raw.size(), wanted.size());
    ASSERT_EQ(plain.size(), wanted.size());
    ASSERT_FALSE(wanted.empty());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Volume again = Reprocessed(raw[i].status, second);
      EXPECT_TRUE(again.bytes == wanted[i].bytes) << "volume " << i;
      EXPECT_EQ(again.status.missing, wanted[i].status.missing);
      EXPECT_EQ(again.status.complete, wanted[i].status.complete);
      EXPECT_EQ(again.status.derived_from, raw[i].status.name);
      EXPECT_EQ(again.status.level_hi, wanted[i].status.level_hi);
      EXPECT_TRUE(Reprocessed(raw[i].status, first).bytes == plain[i].bytes) << "volume " << i;
    }
  }

  const SystemClock clock_;
  Ledger ledger_{{int64_t{1} << 30}};
  VolumeStore store_{&ledger_, &clock_};
  Publisher publisher_{&clock_};
};

TEST_P(ReprocessTest, RawVolumesHoldTheRecordsInTheOrderOfAcquisition) {
  Pattern pattern = Raster(7, 3, 2);
  pattern.flyback_records = 2;
  Run(Resolved(pattern, Plain(), true), "scans/a", {{0, 30}, {30, 24}});
  const auto raw = VolumesOf("scans/a", true);
  ASSERT_EQ(raw.size(), 2u);
  for (int64_t v = 0; v < 2; ++v) {
    const Volume& volume = raw[static_cast<size_t>(v)];
    EXPECT_THAT(volume.status.shape, ElementsAre(3, 9, kSamples));
    EXPECT_EQ(volume.status.dtype, DType::kU16);
    EXPECT_EQ(volume.status.quantity, model::Quantity::kRawSpectra);
    EXPECT_EQ(volume.status.index, v);
    EXPECT_EQ(volume.status.state, VolumeState::kHeld);
    EXPECT_EQ(volume.status.digest.substr(0, 6), "sum64:");
    EXPECT_TRUE(volume.status.complete);
    const auto* samples = reinterpret_cast<const uint16_t*>(volume.bytes.data());
    for (int64_t r = 0; r < 27; ++r) {
      for (int64_t j = 0; j < kSamples; ++j)
        ASSERT_EQ(samples[r * kSamples + j], SampleOf(27 * v + r, j)) << v << " " << r << " " << j;
    }
  }
  // The raw spectra are charged as held; all other memory of the scan is free again.
  const auto use = ledger_.UseOf(0);
  EXPECT_EQ(use.reserved, 0);
  const ResolvedScan scan = Resolved(pattern, Plain(), true);
  const auto plain = VolumesOf("scans/a", false);
  EXPECT_GE(use.held, 2 * (RawRecorder::SlotBytes(scan) + scan.volume_bytes));
  for (const auto& volume : store_.List())
    ASSERT_THAT(store_.Discard(volume.name, Reason::kDiscarded, "over"), IsOk());
  EXPECT_EQ(ledger_.UseOf(0).held, 0);
}

TEST_P(ReprocessTest, MakesWhatTheScanWouldHave) {
  Pattern pattern = Raster(12, 5, 3);
  pattern.bidirectional = true;
  pattern.flyback_records = 3;
  const int64_t records = 3 * 5 * 15;
  ExpectTheSame(pattern, Plain(), Other(), {{0, records}});  // blocks of 50 span volumes of 75
}

TEST_P(ReprocessTest, ShortBlocksAndALongRollingBackground) {
  Processing longer = Other();
  longer.background_window_records = 80;
  Processing first = Plain();
  first.background_window_records = 120;
  const int64_t records = 3 * 60;
  std::vector<Piece> pieces;
  for (int64_t at = 0, n = 1; at < records; at += n, n = n % 23 + 4)
    pieces.push_back({at, std::min(n, records - at)});
  ExpectTheSame(Raster(12, 5, 3), first, longer, pieces);
}

// Random groups, windows, blocks and gaps: with the scan's own processing, and with another one
// whose window was kept.
TEST_P(ReprocessTest, RollingBackgroundsAtRandom) {
  std::mt19937 random(octavo::testing::FreshSeed());
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random()) % n; };
  for (int turn = 0; turn < 8; ++turn) {
    Pattern pattern = Raster(12, 5, 3);
    pattern.flyback_records = below(4);
    pattern.volume_flyback_records = below(9);
    const int64_t n = 5 * (12 + pattern.flyback_records) + pattern.volume_flyback_records;
    Processing first = Plain(), second = Other();
    first.background_group_records = below(n + 1);
    first.background_window_records = below(3 * n);
    // A volume ends with the group of its last A-scan. Flyback records after it are not held.
    const int64_t line = 12 + pattern.flyback_records;
    const auto end_of = [&](int64_t group) {
      return std::min(
          n, (n - pattern.volume_flyback_records - pattern.flyback_records - 1) / group * group +
                 group);
    };
    do {
      second.background_group_records = below(n + 1);
    } while (end_of(second.background_group_records == 0 ? line : second.background_group_records) >
             end_of(first.background_group_records == 0 ? line : first.background_group_records));
    second.background_window_records = below(40);
    if (first.background_group_records == 0)
      first.background_window_records = std::min<int64_t>(first.background_window_records, 4096);
    std::vector<Piece> pieces;
    for (int64_t at = 0; at < 3 * n;) {
      const int64_t count = std::min(3 * n - at, 1 + below(40));
      if (turn % 2 == 0 || below(7) > 0) pieces.push_back({at, count});
      at += count;
    }
    SCOPED_TRACE("groups " + std::to_string(first.background_group_records) + " and " +
                 std::to_string(second.background_group_records) + ", windows " +
                 std::to_string(first.background_window_records) + " and " +
                 std::to_string(second.background_window_records));
    for (const VolumeStatus& volume : store_.List()) {
      if (volume.state == VolumeState::kHeld)
        ASSERT_THAT(store_.Discard(volume.name, Reason::kDiscarded, "over"), IsOk());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectTheSame(pattern, first, second, pieces, 40 + below(30)));
  }
}

// An update replaces the processing in the middle of a scan: the raw volumes of both processings
// reproduce their volumes bit for bit.
TEST_P(ReprocessTest, AfterAnUpdate) {
  Pattern pattern = Raster(12, 5, 6);
  pattern.flyback_records = 2;
  for (const bool other_window : {false, true}) {
    Processing first = Plain(), second = Plain();
    first.background_window_records = second.background_window_records = 130;
    second.window = 1 + static_cast<int>(WindowKind::kBlackman);
    if (other_window) second.background_window_records = 45;
    const ResolvedScan before = Resolved(pattern, first, true),
                       after = *ResolveUpdate(before, second);
    testing::SessionRun run({&device_});
    bool updated = false;
    const testing::KnownRecords records(octavo::testing::FreshSeed(), kSamples);
    auto source = std::make_unique<testing::KnownSource>(
        records, before.volume_records * 6, nullptr, [&](int64_t next) {
          if (updated || next < 2 * before.volume_records + 30) return;
          updated = true;
          while (run.session() == nullptr || run.session()->Status().volumes_done == 0)
            std::this_thread::yield();
          EXPECT_THAT(run.session()->Update(after), IsOk());
        });
    ASSERT_THAT(run.Start(before, std::move(source)), IsOk());
    EXPECT_EQ(run.WaitForTheEnd().volumes_done, 6);
    int of_second = 0;
    for (const VolumeStatus& raw : run.store().List()) {
      if (!raw.is_raw) continue;
      for (const VolumeStatus& made : run.store().List()) {
        if (made.is_raw || made.index != raw.index) continue;
        of_second += made.origin->spec.processing.window == second.window;
        const auto scan = ResolveReprocess(raw, made.origin->spec.processing);
        ASSERT_THAT(scan, IsOk());
        DeviceBuffer out = Poisoned(scan->volume_bytes);
        auto reprocessor = Reprocessor::Create(
            *scan, *run.store().Hold(raw.name, HoldKind::kDevice), device_, stream_.ref());
        ASSERT_THAT(reprocessor, IsOk());
        ASSERT_THAT((*reprocessor)->Run(stream_.ref(), {.volume = out.data()}, nullptr), IsOk());
        const auto pinned = run.store().Hold(made.name, HoldKind::kDevice);
        ASSERT_THAT(pinned, IsOk());
        EXPECT_TRUE(Bytes(out.data(), made.bytes) == Bytes(pinned->slot->volume.data(), made.bytes))
            << "volume " << made.index;
      }
    }
    EXPECT_GT(of_second, 0);
    EXPECT_LT(of_second, 6);
  }
}

TEST_P(ReprocessTest, MissingAndRepeatedRecords) {
  ExpectTheSame(Raster(12, 5, 3), Plain(), Other(),
                {{0, 20}, {31, 9}, {35, 30}, {30, 8}, {65, 20}, {90, 33}, {140, 40}});
}

TEST_P(ReprocessTest, BackgroundOfTheBscanAndFixedPatternNoise) {
  Processing second = Other();
  second.background = BackgroundMode::kBscan;
  second.fixed_pattern_noise = FixedPatternNoise::kMean;
  Pattern pattern = Raster(12, 5, 2);
  pattern.flyback_records = 2;
  ExpectTheSame(pattern, Plain(), second, {{0, 140}});
}

TEST_P(ReprocessTest, RepeatsThatAreAveraged) {
  Pattern pattern = Raster(10, 4, 2);
  pattern.kind = PatternKind::kRepeatedRaster;
  pattern.repeat_count = 3;
  pattern.repeat_period = 2;
  pattern.repeat_strategy = RepeatStrategy::kAverage;
  ExpectTheSame(pattern, Plain(), Other(), {{0, 50}, {60, 180}}, 33);
}

TEST_P(ReprocessTest, ALongerBackgroundThanWasKeptIsRefused) {
  Run(Resolved(Raster(12, 10, 3), Plain(), true), "scans/a", {{0, 360}});
  const auto raw = VolumesOf("scans/a", true);
  ASSERT_EQ(raw.size(), 3u);
  Processing processing = Plain();
  processing.background_window_records = 63;
  EXPECT_THAT(
      ResolveReprocess(raw[2].status, processing),
      IsError(absl::StatusCode::kInvalidArgument, "allowed 0 to 62"));  // a block and a group
  EXPECT_THAT(ResolveReprocess(raw[0].status, processing), IsOk());     // has no earlier records
  EXPECT_THAT(ResolveReprocess(VolumesOf("scans/a", false)[0].status, processing),
              IsError(absl::StatusCode::kInvalidArgument, "no raw spectra"));
  processing = Plain();
  processing.fft_length = 3;
  EXPECT_THAT(ResolveReprocess(raw[0].status, processing),
              IsError(absl::StatusCode::kInvalidArgument, "processing.fft_length"));
}

// The same records arrive repeatedly while the volume is acquired: they count once.
TEST_P(ReprocessTest, RecordsThatComeAgainAndAgain) {
  std::vector<Piece> pieces = {{0, 30}};
  for (int i = 0; i < 20; ++i) pieces.push_back({0, 30});
  pieces.push_back({30, 30});
  Run(Resolved(Raster(12, 5, 1), Plain(), true), "scans/a", pieces);
  const auto raw = VolumesOf("scans/a", true);
  ASSERT_EQ(raw.size(), 1u);
  EXPECT_TRUE(raw[0].status.complete);
  Run(Resolved(Raster(12, 5, 1), Plain(), false), "scans/again", {{0, 60}});
  const auto wanted = VolumesOf("scans/again", false)[0].bytes;
  EXPECT_TRUE(VolumesOf("scans/a", false)[0].bytes == wanted);
  EXPECT_TRUE(Reprocessed(raw[0].status, Plain()).bytes == wanted);
}

INSTANTIATE_TEST_SUITE_P(Backends, ReprocessTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
