// The chain counts clipped voxels exactly, and the span that it reports bounds its results.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "gpu/spectral/spectral_span.h"
#include "tests/gpu/spectral/spectral_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BaseConfig;
using testing::FreshSeed;
using testing::IsOk;
using testing::Warp;

struct Counts {
  uint64_t below = 0, above = 0;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << c.below << " below, " << c.above << " above";
}

class SpectralClipTest : public testing::SpectralTest {
 protected:
  static constexpr int64_t kX = 20, kY = 5, kFlyback = 3, kLine = kX + kFlyback,
                           kRecords = kY * kLine, kAscans = kX * kY;
  const math::RasterPlacement raster_{.ascans_per_bscan = kX,
                                      .bscans_per_volume = kY,
                                      .flyback_records = kFlyback,
                                      .bidirectional = true};

  struct Result {
    std::vector<uint8_t> volume;
    Counts counts;
  };
  // Processes all records of a volume in calls of at most `piece` records. The counts start from
  // `before`.
  Result Run(const SpectralConfig& c, const DeviceBuffer& raw, int64_t piece, bool projections,
             int64_t volume_ascans = kAscans, uint64_t before = 0) {
    auto processor = SpectralProcessor::Create(c, device_);
    EXPECT_THAT(processor.status(), IsOk());
    const int64_t bytes = kAscans * c.depth * SizeOf(c.output);
    const DeviceBuffer volume = Poisoned(bytes), mip = Poisoned(kAscans * 4),
                       aip = Poisoned(kAscans * 4);
    const DeviceBuffer clipped = Upload(std::vector<uint64_t>{before, before + 1, 77});
    const SpectralTarget target{.volume = volume.data(),
                                .volume_ascans = volume_ascans,
                                .mip = projections ? mip.data() : nullptr,
                                .aip = projections ? aip.as<float>() : nullptr,
                                .clipped = clipped.as<uint64_t>()};
    EXPECT_THAT((*processor)->BeginVolume(stream_.ref()), IsOk());
    for (int64_t first = 0; first < kRecords; first += piece) {
      const int64_t count = std::min(piece, kRecords - first);
      const uint8_t* data = raw.as<uint8_t>() + first * RecordBytes(c);
      EXPECT_THAT((*processor)
                      ->Process(stream_.ref(), data, count,
                                {.raster = raster_, .first_record = first}, target),
                  IsOk());
    }
    EXPECT_THAT((*processor)->EndVolume(stream_.ref()), IsOk());
    const auto counts = Download<uint64_t>(clipped, 3);
    EXPECT_EQ(counts[2], 77u);
    return {Download<uint8_t>(volume, static_cast<size_t>(bytes)),
            {counts[0] - before, counts[1] - before - 1}};
  }

  // The expected counts, from the F32 values of the same chain. `doubtful`: voxels so close to a
  // limit that rounding decides.
  static Counts Wanted(const SpectralConfig& c, const std::vector<uint8_t>& values, int64_t ascans,
                       Counts* doubtful) {
    Counts wanted;
    const double lo = c.level_lo, hi = c.level_hi, bottom = LowestOf(c.output),
                 top = HighestOf(c.output);
    for (int64_t i = 0; i < ascans * c.depth; ++i) {
      const double v = NumberAt(DType::kF32, values.data(), static_cast<size_t>(i));
      const double x = bottom + (v - lo) / (hi - lo) * (top - bottom);
      const double doubt = 1e-3 + 1e-5 * std::abs(x) +
                           1e-6 * (top - bottom) / (hi - lo) * std::max(std::abs(lo), std::abs(hi));
      wanted.below += !(x > bottom - 0.5);
      wanted.above += x >= top + 0.5;
      doubtful->below += std::abs(x - (bottom - 0.5)) < doubt;
      doubtful->above += std::abs(x - (top + 0.5)) < doubt;
    }
    return wanted;
  }

  void Check(SpectralConfig c, uint32_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", F " + std::to_string(c.fft_length) + ", " +
                 Info(c.raw_type).name + " to " + Info(c.output).name + ", value " +
                 std::to_string(static_cast<int>(c.value)));
    c.max_records_per_block = kRecords;
    MakeRecords(c, kRecords, seed);
    if (c.raw_type == DType::kF32) {  // one record is not finite
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes_.data() + 7 * RecordBytes(c) + 20, &nan, 4);
    }
    const DeviceBuffer raw = Upload(bytes_);
    SpectralConfig plain = c;
    plain.output = DType::kF32;
    plain.has_levels = false;
    const Result values = Run(plain, raw, kRecords, false);
    EXPECT_EQ(values.counts, Counts());
    // Levels that clip some voxels at both ends, only below, only above, and none.
    std::vector<float> sorted;
    for (int64_t i = 0; i < kAscans * c.depth; ++i) {
      const auto v =
          static_cast<float>(NumberAt(DType::kF32, values.volume.data(), static_cast<size_t>(i)));
      if (std::isfinite(v)) sorted.push_back(v);
    }
    if (c.raw_type == DType::kF32 && c.value != math::Value::kReal)
      EXPECT_GE(kAscans * c.depth - std::ssize(sorted), c.depth)
          << "what is not finite is not made finite";
    std::sort(sorted.begin(), sorted.end());
    const float low = sorted[sorted.size() / 5],
                high = sorted[sorted.size() - sorted.size() / 50 - 1], least = sorted.front(),
                most = sorted.back();
    c.has_levels = true;
    for (const auto& [lo, hi] : {std::pair{low, high}, std::pair{low, most + 1},
                                 std::pair{least - 1, high}, std::pair{least - 1, most + 1}}) {
      if (!(lo < hi)) continue;
      c.level_lo = lo;
      c.level_hi = hi;
      Counts doubtful;
      const Counts wanted = Wanted(c, values.volume, kAscans, &doubtful);
      const Result whole = Run(c, raw, kRecords, true);
      EXPECT_NEAR(static_cast<double>(whole.counts.below), static_cast<double>(wanted.below),
                  static_cast<double>(doubtful.below));
      EXPECT_NEAR(static_cast<double>(whole.counts.above), static_cast<double>(wanted.above),
                  static_cast<double>(doubtful.above));
      // The counts depend neither on the other outputs nor on the start value.
      const Result cut = Run(c, raw, 37, false, kAscans, 1ull << 40);
      EXPECT_EQ(cut.counts, whole.counts);
      EXPECT_EQ(Run(c, raw, kRecords, false).counts, whole.counts);
      // Only A-scans with a place count.
      doubtful = {};
      const Counts part = Wanted(c, values.volume, kAscans / 2, &doubtful);
      const Result half = Run(c, raw, kRecords, true, kAscans / 2);
      EXPECT_NEAR(static_cast<double>(half.counts.below), static_cast<double>(part.below),
                  static_cast<double>(doubtful.below));
      EXPECT_NEAR(static_cast<double>(half.counts.above), static_cast<double>(part.above),
                  static_cast<double>(doubtful.above));
    }
  }
};

TEST_P(SpectralClipTest, CountsWhatWasClipped) {
  std::mt19937 random(FreshSeed());
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  for (int round = 0; round < 40; ++round) {
    const int64_t samples =
        one_of(std::vector<int64_t>{64, 120, 256, 500, 512, 1024, 1536, 2048, 3072, 4096});
    SpectralConfig c = BaseConfig(samples);
    if (random() % 2 == 0)
      Warp(c, one_of(std::vector{math::Interpolation::kLinear, math::Interpolation::kCubic,
                                 math::Interpolation::kLanczos}));
    if (random() % 2 == 0) c.phase_rad = MakeDispersionPhase(2e-5, 1e-9, samples);
    c.value = one_of(std::vector{math::Value::kDb, math::Value::kDb, math::Value::kMagnitude,
                                 math::Value::kPower, math::Value::kReal});
    c.output = one_of(std::vector{DType::kU8, DType::kU8, DType::kU16, DType::kI8});
    c.raw_type =
        one_of(std::vector{DType::kU16, DType::kU16, DType::kU8, DType::kI16, DType::kF32});
    if (c.raw_type == DType::kU16)
      c.packing = one_of(std::vector{math::Packing::kNone, math::Packing::kLowFirst12,
                                     math::Packing::kHighFirst12});
    const auto background = random() % 4;
    if (background == 1)
      c.background = math::Background::kStatic,
      c.background_spectrum.assign(static_cast<size_t>(samples), 1900.0f);
    if (background == 2) c.background = math::Background::kBscan, c.bscan_records = kX;
    if (background == 3)
      c.background = math::Background::kRolling, c.background_group_records = 17,
      c.background_window_records = 50;
    if (random() % 4 == 0) c.fixed_pattern = math::FixedPattern::kMean, c.bscan_records = kX;
    if (random() % 3 == 0) c.first_bin = 3, c.depth -= 11;
    if (random() % 3 == 0) c.slab_begin = 5, c.slab_end = c.depth - 7;
    Check(c, static_cast<uint32_t>(random()));
    if (HasFatalFailure()) return;
  }
}

// The chains that the fused launch supports best: every length, with and without dispersion, from
// 16 and 12 bits, to one and two bytes.
TEST_P(SpectralClipTest, CountsInUsualChains) {
  for (const int64_t samples : {512, 1024, 1536, 2048, 3072, 4096}) {
    for (const bool dispersion : {false, true}) {
      for (const auto packing : {math::Packing::kNone, math::Packing::kLowFirst12}) {
        for (const DType output : {DType::kU8, DType::kU16}) {
          SpectralConfig c = BaseConfig(samples);
          Warp(c, math::Interpolation::kCubic);
          if (dispersion) c.phase_rad = MakeDispersionPhase(2e-5, 0, samples);
          c.packing = packing;
          c.value = math::Value::kDb;
          c.output = output;
          Check(c, FreshSeed());
        }
      }
    }
  }
}

// A value that rounds to a number of the type is not clipped; any value beyond is. NaN is clipped
// below.
TEST(SpectralClip, BordersAreHalfAStepOutside) {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [bottom, top] :
       {std::pair{0.0f, 255.0f}, std::pair{-128.0f, 127.0f}, std::pair{0.0f, 65535.0f}}) {
    for (const float x : {bottom, top, bottom - 0.49f, top + 0.49f})
      EXPECT_FALSE(math::ClippedBelow(x, bottom) || math::ClippedAbove(x, top)) << x;
    for (const float x : {bottom - 0.5f, bottom - 7, -inf, nan})
      EXPECT_TRUE(math::ClippedBelow(x, bottom) && !math::ClippedAbove(x, top)) << x;
    for (const float x : {top + 0.5f, top + 7, inf})
      EXPECT_TRUE(!math::ClippedBelow(x, bottom) && math::ClippedAbove(x, top)) << x;
  }
}

// Each repeat rewrites the mean of the repeats before it: only the final voxels count.
TEST_P(SpectralClipTest, RepeatsCountOnce) {
  for (const int64_t lost : {int64_t{0}, int64_t{30}}) {
    SpectralConfig c = BaseConfig(256);
    c.value = math::Value::kDb;
    c.output = DType::kU8;
    c.repeats = kY;
    c.repeat_ascans = kX;
    c.max_records_per_block = kRecords;
    c.has_levels = true;
    c.level_lo = 32;  // about the mean of the noise
    c.level_hi = 34;
    MakeRecords(c, kRecords, FreshSeed());
    const DeviceBuffer raw = Upload(bytes_);
    // Every line brings the same A-scans again.
    std::vector<int32_t> places;
    std::vector<BscanSpan> spans;
    for (int64_t r = 0; r < kRecords; ++r)
      places.push_back(r % kLine < kX ? static_cast<int32_t>(r % kLine) : -1);
    for (int64_t y = 0; y < kY; ++y)
      spans.push_back({.first_record = y * kLine, .records = kX, .repeat = y});
    const DeviceBuffer table = Upload(places);
    const auto run = [&](const SpectralConfig& config, std::vector<uint8_t>* volume) {
      auto processor = SpectralProcessor::Create(config, device_).value();
      const DeviceBuffer out = Poisoned(kX * config.depth * SizeOf(config.output)),
                         clipped = Upload(std::vector<uint64_t>{0, 0});
      const SpectralTarget target{.volume = out.data(),
                                  .volume_ascans = kX,
                                  .mip = nullptr,
                                  .aip = nullptr,
                                  .clipped = clipped.as<uint64_t>()};
      std::vector<uint64_t> counts;
      // The second volume must not depend on the first.
      for (int volumes = 0; volumes < 2; ++volumes) {
        EXPECT_THAT(device_.Fill(stream_.ref(), clipped.data(), 16, 0), IsOk());
        EXPECT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
        for (int64_t first = lost; first < kRecords; first += 31) {
          EXPECT_THAT(
              processor->Process(stream_.ref(), raw.as<uint8_t>() + first * RecordBytes(config),
                                 std::min<int64_t>(31, kRecords - first),
                                 {.first_record = first,
                                  .table = table.as<int32_t>() + first,
                                  .spans = spans.data(),
                                  .span_count = kY},
                                 target),
              IsOk());
        }
        EXPECT_THAT(processor->EndVolume(stream_.ref()), IsOk());
        counts = Download<uint64_t>(clipped, 2);
      }
      *volume = Download<uint8_t>(out, static_cast<size_t>(out.bytes()));
      return Counts{counts[0], counts[1]};
    };
    SpectralConfig plain = c;
    plain.output = DType::kF32;
    plain.has_levels = false;
    std::vector<uint8_t> values, stored;
    EXPECT_EQ(run(plain, &values), Counts());
    const Counts got = run(c, &stored);
    Counts doubtful;
    const Counts wanted = Wanted(c, values, kX, &doubtful);
    EXPECT_GT(wanted.below, 0u);
    EXPECT_GT(wanted.above, 0u);
    EXPECT_NEAR(static_cast<double>(got.below), static_cast<double>(wanted.below),
                static_cast<double>(doubtful.below));
    EXPECT_NEAR(static_cast<double>(got.above), static_cast<double>(wanted.above),
                static_cast<double>(doubtful.above));
  }
}

// For any samples of the raw type, no result exceeds LargestMagnitude, and with the levels of
// DbSpan nothing is clipped.
TEST_P(SpectralClipTest, TheSpanBoundsTheWorstRecords) {
  std::mt19937 random(FreshSeed());
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  for (int round = 0; round < 60; ++round) {
    const int64_t samples = one_of(std::vector<int64_t>{16, 64, 250, 512, 1024, 2048});
    SpectralConfig c = BaseConfig(samples);
    c.window = MakeWindow(one_of(std::vector{WindowKind::kRect, WindowKind::kHann,
                                             WindowKind::kGauss, WindowKind::kFlatTop}),
                          samples);
    if (random() % 4 == 0) {
      for (float& w : c.window) w = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    }
    if (random() % 3 != 0)
      Warp(c, one_of(std::vector{math::Interpolation::kLinear, math::Interpolation::kCubic,
                                 math::Interpolation::kLanczos}));
    if (random() % 2 == 0) c.phase_rad = MakeDispersionPhase(2e-4, 1e-8, samples);
    if (random() % 3 == 0) c.fft_length = 2 * samples;
    c.first_bin = 0;
    c.depth = c.fft_length / 2;
    c.raw_type = one_of(std::vector{DType::kU16, DType::kU8, DType::kI16});
    if (c.raw_type == DType::kU16)
      c.packing = one_of(std::vector{math::Packing::kNone, math::Packing::kLowFirst12,
                                     math::Packing::kHighFirst12});
    const SampleRange range = RangeOf(c.raw_type, c.packing, 0);
    const auto background = random() % 4;
    if (background == 1) {
      c.background = math::Background::kStatic;
      for (int64_t j = 0; j < samples; ++j)
        c.background_spectrum.push_back(
            static_cast<float>(static_cast<int>(random() % 100000) - 30000));
    }
    if (background == 2) c.background = math::Background::kBscan, c.bscan_records = kX;
    if (background == 3) {
      c.background = math::Background::kRolling;
      c.background_group_records = 1 + static_cast<int64_t>(random() % 30);
      c.background_window_records = static_cast<int64_t>(random() % 60);
    }
    if (random() % 4 == 0) c.fixed_pattern = math::FixedPattern::kMean, c.bscan_records = kX;
    c.max_records_per_block = kRecords;
    SCOPED_TRACE("round " + std::to_string(round) + ", " + Info(c.raw_type).name + " x " +
                 std::to_string(samples) + ", F " + std::to_string(c.fft_length) + ", background " +
                 std::to_string(background) + ", interpolation " +
                 std::to_string(static_cast<int>(c.interpolation)));

    // Constants at either end, alternating ends, cosines over the whole range, ends chosen by sign
    // to make one bin largest, and noise of ends.
    bytes_.assign(static_cast<size_t>(kRecords * RecordBytes(c)), 0);
    for (int64_t r = 0; r < kRecords; ++r) {
      const int64_t bin = static_cast<int64_t>(random() % static_cast<uint32_t>(c.depth));
      const double turn = static_cast<double>(random() % 1000) / 1000 * 2 * std::numbers::pi;
      for (int64_t j = 0; j < samples; ++j) {
        const double angle = 2 * std::numbers::pi * static_cast<double>(bin * j) /
                                 static_cast<double>(c.fft_length) +
                             turn;
        const double h = static_cast<double>(c.window[static_cast<size_t>(j)]);
        const double middle = (range.lo + range.hi) / 2;
        double v = range.hi;
        switch (r % 6) {
          case 0: break;
          case 1: v = range.lo; break;
          case 2: v = j % 2 == 0 ? range.hi : range.lo; break;
          case 3: v = middle + (range.hi - middle) * std::cos(angle); break;
          case 4: v = h * std::cos(angle) > 0 ? range.hi : range.lo; break;
          default: v = random() % 2 == 0 ? range.hi : range.lo; break;
        }
        uint8_t* record = bytes_.data() + r * RecordBytes(c);
        const auto put = [&](auto sample) {
          std::memcpy(record + j * static_cast<int64_t>(sizeof sample), &sample, sizeof sample);
        };
        v = std::round(v);
        if (c.packing != math::Packing::kNone) {
          math::WritePacked12(c.packing, record, j, static_cast<uint32_t>(v));
        } else if (c.raw_type == DType::kU8) {
          put(static_cast<uint8_t>(v));
        } else if (c.raw_type == DType::kI16) {
          put(static_cast<int16_t>(v));
        } else {
          put(static_cast<uint16_t>(v));
        }
      }
    }
    const DeviceBuffer raw = Upload(bytes_);
    c.value = math::Value::kMagnitude;
    const Result magnitudes = Run(c, raw, 50, false);
    const double bound = LargestMagnitude(c, range);
    double most = 0;
    for (int64_t i = 0; i < kAscans * c.depth; ++i)
      most =
          std::max(most, NumberAt(DType::kF32, magnitudes.volume.data(), static_cast<size_t>(i)));
    EXPECT_LE(most, bound);
    // The bound is not much larger than necessary: where nothing is subtracted, a constant record
    // of the largest number reaches it.
    const bool plain = c.background == math::Background::kNone &&
                       c.fixed_pattern == math::FixedPattern::kNone && c.phase_rad.empty();
    const bool positive =
        std::all_of(c.window.begin(), c.window.end(), [](float w) { return w >= 0; });
    if (plain && positive && range.lo == 0)
      EXPECT_GT(most, bound / (c.interpolation == math::Interpolation::kNone ? 1.002 : 1.73));

    const ValueSpan span = DbSpan(c, range);
    c.value = math::Value::kDb;
    c.has_levels = true;
    c.output = DType::kU16;
    c.level_lo = static_cast<float>(span.lo);
    c.level_hi = static_cast<float>(span.hi);
    EXPECT_EQ(Run(c, raw, 50, random() % 2 == 0).counts, Counts())
        << "levels " << span.lo << " to " << span.hi;
    if (HasFailure()) return;
  }
}

TEST(SpectralSpan, LanczosOvershootIsBounded) {
  double most = 0;
  for (int i = 0; i <= 10000; ++i) {
    float w[8];
    double sum = 0;
    math::WeightsOf(math::Interpolation::kLanczos, static_cast<float>(i) / 10000, w);
    for (const float v : w) sum += std::abs(static_cast<double>(v));
    most = std::max(most, sum);
  }
  EXPECT_LT(most, 1.72);
  EXPECT_GT(most, 1.71);
}

TEST(SpectralSpan, RangesOfRawTypes) {
  const auto range = [](DType type, math::Packing packing, int64_t bits) {
    return RangeOf(type, packing, bits);
  };
  EXPECT_EQ(range(DType::kU8, math::Packing::kNone, 0).hi, 255);
  EXPECT_EQ(range(DType::kU16, math::Packing::kNone, 0).hi, 65535);
  EXPECT_EQ(range(DType::kU16, math::Packing::kNone, 10).hi, 1023);
  EXPECT_EQ(range(DType::kU16, math::Packing::kLowFirst12, 0).hi, 4095);
  EXPECT_EQ(range(DType::kI16, math::Packing::kNone, 0).lo, -32768);
  EXPECT_EQ(range(DType::kI16, math::Packing::kNone, 0).hi, 32767);
  EXPECT_EQ(range(DType::kI16, math::Packing::kNone, 12).lo, -4095);
  EXPECT_EQ(range(DType::kF32, math::Packing::kNone, 0).hi, 1);
  EXPECT_EQ(range(DType::kF32, math::Packing::kNone, 12).lo, -4095);
}

INSTANTIATE_TEST_SUITE_P(Backends, SpectralClipTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

}  // namespace
}  // namespace octavo
