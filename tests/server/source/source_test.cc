#include "server/source/source.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <complex>
#include <limits>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tbb/global_control.h"

#include "server/model/resolved_scan.h"
#include "server/scan/resolve_scan.h"
#include "server/source/simulated_model.h"
#include "tests/gpu/spectral/spectral_model.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using ::octavo::testing::IsOk;

const SystemClock kClock;

ScanSpec Spec(SimulatedSource source, int64_t samples, RasterPattern pattern) {
  source.as_fast_as_possible = true;
  ScanSpec spec;
  spec.source = std::move(source);
  spec.acquisition.samples_per_record = samples;
  spec.pattern = pattern;
  return spec;
}

// `records` records of T, taken in blocks of `block`.
template <typename T>
std::vector<T> Take(const ScanSpec& spec, int64_t records, int64_t block) {
  const auto scan = ResolveScan(spec, {});
  EXPECT_THAT(scan, IsOk());
  auto source = OpenSource(scan->spec, {}, &kClock);
  EXPECT_THAT(source, IsOk());
  const int64_t samples = scan->spec.acquisition.samples_per_record;
  std::vector<T> all(static_cast<size_t>(records * samples));
  std::stop_source stop;
  for (int64_t done = 0; done < records;) {
    const auto got = (*source)->Next(all.data() + done * samples, std::min(block, records - done),
                                     stop.get_token());
    EXPECT_THAT(got, IsOk());
    EXPECT_EQ(got->first_record, done);
    done += got->records;
  }
  return all;
}

std::vector<double> Record(const std::vector<uint16_t>& raw, int64_t record, int64_t samples) {
  return {raw.begin() + record * samples, raw.begin() + (record + 1) * samples};
}

// Magnitudes of the A-scan of a record minus the mean of all records, computed with the
// double-precision model.
std::vector<double> Ascan(const ResolvedScan& scan, const std::vector<double>& record,
                          const std::vector<double>& background = {}) {
  std::vector<double> magnitude;
  for (const auto& z : octavo::testing::ModelDepth(scan.chain, record, background))
    magnitude.push_back(std::abs(z));
  return magnitude;
}

// Position of the largest value in [from, to), from a parabola through it and its neighbours.
double Peak(const std::vector<double>& v, int64_t from, int64_t to) {
  const auto i = std::max_element(v.begin() + from, v.begin() + to) - v.begin();
  const double a = v[static_cast<size_t>(i - 1)], b = v[static_cast<size_t>(i)],
               c = v[static_cast<size_t>(i + 1)];
  return static_cast<double>(i) + 0.5 * (a - c) / (a - 2 * b + c);
}

// Number of bins around the largest value in [from, to) that have at least half of it.
int64_t Width(const std::vector<double>& v, int64_t from, int64_t to) {
  const double half = 0.5 * *std::max_element(v.begin() + from, v.begin() + to);
  return std::count_if(v.begin() + from, v.begin() + to, [&](double x) { return x >= half; });
}

const RasterPattern kSmall{
    .ascans_per_bscan = 32, .bscans_per_volume = 8, .volumes = 1, .flyback_records = 3};

TEST(SimulatedSourceTest, ARepeatedBlockIsWrittenOnceToEachSlot) {
  ScanSpec spec = Spec({.seed = 3, .repeat_block = true}, 64, kSmall);
  const auto once = Take<uint16_t>(spec, 20, 10);  // two slots
  EXPECT_TRUE(std::equal(once.begin(), once.begin() + 640, once.begin() + 640));
  std::get<SimulatedSource>(spec.source).repeat_block = false;
  const auto plain = Take<uint16_t>(spec, 20, 10);
  EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + 640, once.begin()));
  EXPECT_FALSE(std::equal(plain.begin() + 640, plain.end(), once.begin() + 640));

  std::get<SimulatedSource>(spec.source).repeat_block = true;
  const auto scan = ResolveScan(spec, {});
  ASSERT_THAT(scan, IsOk());
  auto source = OpenSource(scan->spec, {}, &kClock);
  ASSERT_THAT(source, IsOk());
  std::vector<uint16_t> slot(640, 0);
  const std::stop_source stop;
  ASSERT_THAT((*source)->Next(slot.data(), 10, stop.get_token()), IsOk());
  EXPECT_TRUE(std::equal(slot.begin(), slot.end(), once.begin()));
  slot[5] = 9999;  // a later read must show this change
  const auto again = (*source)->Next(slot.data(), 10, stop.get_token());
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->first_record, 10);
  EXPECT_EQ(slot[5], 9999);

  spec.acquisition.record_average = 2;
  EXPECT_THAT(ResolveScan(spec, {}), octavo::testing::IsError(absl::StatusCode::kInvalidArgument,
                                                              "simulated.repeat_block"));
}

TEST(SimulatedSourceTest, TheSameWhateverTheBlocksAndThreads) {
  const ScanSpec spec = Spec({.seed = 5}, 256, kSmall);
  const auto whole = Take<uint16_t>(spec, 300, 300);
  EXPECT_EQ(Take<uint16_t>(spec, 300, 1), whole);
  EXPECT_EQ(Take<uint16_t>(spec, 300, 7), whole);
  tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  EXPECT_EQ(Take<uint16_t>(spec, 300, 64), whole);
}

// Plain threads, because the thread sanitizer understands their hand-over but does not see into
// TBB.
TEST(SimulatedModelTest, RendersFromManyThreads) {
  const ScanSpec spec = Spec({.seed = 5}, 64, kSmall);
  const auto expected = Take<uint16_t>(spec, 200, 200);
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const SimulatedModel model(std::get<SimulatedSource>(scan.spec.source), scan.spec.pattern, 64,
                             DType::kU16);
  std::vector<uint16_t> all(expected.size());
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t r = t; r < 200; r += 4) model.Render(r, all.data() + r * 64);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(all, expected);
}

TEST(SimulatedSourceTest, AllBitsOfTheSeedCount) {
  const auto zero = Take<uint16_t>(Spec({.seed = 0}, 256, kSmall), 20, 20);
  EXPECT_NE(Take<uint16_t>(Spec({.seed = 1}, 256, kSmall), 20, 20), zero);
  EXPECT_NE(Take<uint16_t>(Spec({.seed = uint64_t{1} << 40}, 256, kSmall), 20, 20), zero);
  // Noise alone, without phantom or pattern.
  const auto noise = [](uint64_t seed) {
    return Take<uint16_t>(Spec({.seed = seed,
                                .fixed_pattern = -1,
                                .layers = {{.depth_um = 100, .reflectivity = 1e-8}}},
                               256, kSmall),
                          20, 20);
  };
  EXPECT_NE(noise(uint64_t{1} << 40), noise(0));
  EXPECT_EQ(noise(7), noise(7));
}

TEST(SimulatedSourceTest, LayersLieWhereTheyShould) {
  SimulatedSource source{.seed = 2,
                         .nonlinearity = 0.05,
                         .dispersion_a2 = 6e-5,
                         .dispersion_a3 = 2e-8,
                         .noise_counts = -1,
                         .fixed_pattern = -1,
                         .layers = {{.depth_um = 300, .reflectivity = 0.05, .tilt_um_per_mm = 800},
                                    {.depth_um = 700, .reflectivity = 0.03, .waviness_um = 12},
                                    {.depth_um = 1400, .reflectivity = 0.02}}};
  ScanSpec spec =
      Spec(source, 1024, {.ascans_per_bscan = 50, .bscans_per_volume = 4, .volumes = 1});
  spec.processing.background = BackgroundMode::kNone;
  spec.processing.dispersion_a2 = 6e-5;
  spec.processing.dispersion_a3 = 2e-8;
  spec.processing.fft_length = 8192;  // padded: a bin is an eighth of a resolution element
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  const SimulatedModel model(std::get<SimulatedSource>(scan.spec.source), scan.spec.pattern, 1024,
                             DType::kU16);
  const auto raw = Take<uint16_t>(spec, 200, 200);
  const double pixel = 8 * scan.spacing_um[2];  // of the unpadded transform
  for (const int64_t record : {0, 24, 49, 75, 199}) {
    const auto ascan = Ascan(scan, Record(raw, record, 1024));
    const auto depths = model.LayerDepthsUm(record % 50, record / 50);
    ASSERT_EQ(depths.size(), 3u);
    for (const double depth : depths) {
      const auto at = static_cast<int64_t>(depth / scan.spacing_um[2]);
      const double found = Peak(ascan, at - 40, at + 40) * scan.spacing_um[2];
      EXPECT_NEAR(found, depth, 0.1 * pixel) << "record " << record;
      EXPECT_LE(Width(ascan, at - 100, at + 100), 30) << "3.7 pixels at most";
    }
  }
  // The phantom has its tilt and its waves.
  EXPECT_NEAR(model.LayerDepthsUm(49, 0)[0] - model.LayerDepthsUm(0, 0)[0], 0.8 * 49, 1e-9);
  EXPECT_GT(std::abs(model.LayerDepthsUm(12, 0)[1] - model.LayerDepthsUm(37, 0)[1]), 15);
}

TEST(SimulatedSourceTest, WithoutLinearisationOrDispersionPeaksAreBroad) {
  SimulatedSource source{.nonlinearity = 0.05,
                         .dispersion_a2 = 1e-4,
                         .noise_counts = -1,
                         .fixed_pattern = -1,
                         .layers = {{.depth_um = 700, .reflectivity = 0.05}}};
  ScanSpec spec = Spec(source, 1024, {.ascans_per_bscan = 4, .bscans_per_volume = 1, .volumes = 1});
  spec.processing.background = BackgroundMode::kNone;
  const auto raw = Take<uint16_t>(spec, 1, 1);
  const auto width = [&](KMode k, double a2) {
    spec.processing.k_mode = k;
    spec.processing.dispersion_a2 = a2;
    const auto scan = ResolveScan(spec, {});
    EXPECT_THAT(scan, IsOk());
    return Width(Ascan(*scan, Record(raw, 0, 1024)), 60, 500);
  };
  const int64_t right = width(KMode::kFromSource, 1e-4);
  EXPECT_LE(right, 4);
  EXPECT_GE(width(KMode::kNone, 1e-4), 3 * right);
  EXPECT_GE(width(KMode::kFromSource, 0), 3 * right);
  EXPECT_GE(width(KMode::kFromSource, -1e-4), 3 * right) << "the sign is the processing's own";
}

TEST(SimulatedSourceTest, TheAdcClipsAtItsBits) {
  SimulatedSource source{.adc_bits = 10};
  for (int i = 0; i < 8; ++i)
    source.layers.push_back({.depth_um = 50.0 + 40 * i, .reflectivity = 0.2});
  ScanSpec spec = Spec(source, 256, kSmall);
  const auto u16 = Take<uint16_t>(spec, 64, 64);
  EXPECT_EQ(*std::max_element(u16.begin(), u16.end()), 1023);
  EXPECT_EQ(*std::min_element(u16.begin(), u16.end()), 0);
  spec.acquisition.raw_type_given = true;
  spec.acquisition.raw_type = DType::kI16;  // the same minus half of the range
  const auto i16 = Take<int16_t>(spec, 64, 64);
  spec.acquisition.raw_type = DType::kF32;
  const auto f32 = Take<float>(spec, 64, 64);
  for (size_t i = 0; i < u16.size(); ++i) {
    ASSERT_EQ(i16[i], u16[i] - 512);
    ASSERT_EQ(f32[i], static_cast<float>(u16[i]));
  }
  spec.acquisition.raw_type = DType::kU8;
  std::get<SimulatedSource>(spec.source).adc_bits = 0;  // 8 for U8
  const auto u8 = Take<uint8_t>(spec, 64, 64);
  EXPECT_EQ(*std::max_element(u8.begin(), u8.end()), 255);
  std::get<SimulatedSource>(spec.source).adc_bits = 16;
  spec.acquisition.raw_type = DType::kI16;
  const auto full = Take<int16_t>(spec, 64, 64);
  EXPECT_EQ(*std::max_element(full.begin(), full.end()), 32767);
  EXPECT_EQ(*std::min_element(full.begin(), full.end()), -32768);
}

TEST(SimulatedSourceTest, PackedAndInterleavedRecordsHoldTheSameSamples) {
  ScanSpec spec = Spec({.layers = {{.depth_um = 100, .reflectivity = 0.1}}}, 255, kSmall);
  const auto plain = Take<uint16_t>(spec, 8, 8);
  for (const auto packing : {math::Packing::kLowFirst12, math::Packing::kHighFirst12}) {
    for (const int64_t channels : {1, 3}) {
      spec.acquisition.packing = packing;
      spec.acquisition.channels = channels;
      spec.acquisition.channel = channels - 1;
      const int64_t bytes = math::PackedBytes(packing, 255 * channels, 2);
      ASSERT_EQ(bytes, spec.acquisition.SourceRecordBytes());
      auto source = OpenSource(ResolveScan(spec, {}).value().spec, {}, &kClock).value();
      std::vector<uint8_t> raw(static_cast<size_t>(8 * bytes), 0xA5);
      ASSERT_EQ(source->Next(raw.data(), 8, {}).value().records, 8);
      for (int64_t r = 0; r < 8; ++r) {
        for (int64_t i = 0; i < 255 * channels; ++i) {
          const uint32_t wanted =
              i % channels == channels - 1 ? plain[static_cast<size_t>(r * 255 + i / channels)] : 0;
          ASSERT_EQ(math::ReadPacked12(packing, raw.data() + r * bytes, i), wanted)
              << r << " " << i;
        }
      }
    }
  }
}

TEST(SimulatedSourceTest, NoiseIsShotNoisePlusReadNoise) {
  constexpr int64_t kRecords = 4000, kSamples = 64;
  for (const double read : {-1.0, 5.0}) {
    const auto raw = Take<uint16_t>(
        Spec({.noise_counts = read, .layers = {{.depth_um = 100, .reflectivity = 1e-8}}}, kSamples,
             kSmall),
        kRecords, kRecords);
    double means = 0, excess = 0;
    for (int64_t j = 0; j < kSamples; ++j) {
      double sum = 0, squares = 0;
      for (int64_t r = 0; r < kRecords; ++r) {
        const double v = raw[static_cast<size_t>(r * kSamples + j)];
        sum += v;
        squares += v * v;
      }
      const double mean = sum / kRecords, variance = squares / kRecords - mean * mean;
      // 100 electrons per count, plus a twelfth for rounding.
      excess += variance / (mean * 0.01 + (read > 0 ? read * read : 0) + 1.0 / 12);
      means = std::max(means, mean);
    }
    EXPECT_NEAR(excess / kSamples, 1,
                0.03);  // 64 x 4000 samples: 0.3 % from chance, 1 % from the table of deviates
    EXPECT_NEAR(means, 0.45 * 4095, 40);
  }
}

TEST(SimulatedSourceTest, OddLinesRunBackwardsWhenBidirectional) {
  ScanSpec spec =
      Spec({.noise_counts = -1,
            .layers = {{.depth_um = 500, .reflectivity = 0.05, .tilt_um_per_mm = 5000}}},
           1024,
           {.ascans_per_bscan = 40,
            .bscans_per_volume = 2,
            .volumes = 1,
            .bidirectional = true,
            .flyback_records = 5});
  spec.processing.background = BackgroundMode::kNone;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  const auto raw = Take<uint16_t>(spec, 90, 90);
  const auto depth = [&](int64_t record) {
    return Peak(Ascan(scan, Record(raw, record, 1024)), 60, 300) * scan.spacing_um[2];
  };
  EXPECT_NEAR(depth(39) - depth(0), 5 * 39, 2);
  EXPECT_NEAR(depth(45) - depth(0), 5 * 39, 2) << "the second line begins where the first ended";
  EXPECT_NEAR(depth(84) - depth(0), 0, 2);
}

TEST(SimulatedSourceTest, ScatterersDriftFromVolumeToVolume) {
  ScanSpec spec = Spec({.seed = 3,
                        .noise_counts = -1,
                        .fixed_pattern = -1,
                        .motion_um_per_volume = 10,
                        .layers = {{.depth_um = 100, .reflectivity = 1e-8}},
                        .scatterers = 1},
                       512, {.ascans_per_bscan = 64, .bscans_per_volume = 1, .volumes = 3});
  const auto raw = Take<uint16_t>(spec, 64 * 3, 64);
  std::vector<double> flat(512, 1e9);
  for (size_t i = 0; i < raw.size(); ++i)
    flat[i % 512] = std::min(flat[i % 512], static_cast<double>(raw[i]));
  std::vector<int64_t> brightest;
  for (int64_t volume = 0; volume < 3; ++volume) {
    double best = 0;
    brightest.push_back(-1);
    for (int64_t x = 0; x < 64; ++x) {
      const auto record = Record(raw, volume * 64 + x, 512);
      double mean = 0, energy = 0;
      for (const double v : record) mean += v / 512;
      for (size_t j = 1; j < 511; ++j)
        energy += std::pow(record[j + 1] - 2 * record[j] + record[j - 1], 2);
      if (energy > best) {
        best = energy;
        brightest.back() = x;
      }
    }
  }
  EXPECT_NEAR(static_cast<double>((brightest[1] - brightest[0] + 64) % 64), 10, 2);
  EXPECT_NEAR(static_cast<double>((brightest[2] - brightest[1] + 64) % 64), 10, 2);
}

// Black above the surface, bright tissue, and dark again below, in the default contrast of
// pictures: for long and short records alike, and without clipping.
TEST(SimulatedSourceTest, TheDefaultPhantomShowsWithDefaultLevels) {
  for (const int64_t samples : {256, 1024}) {
    SCOPED_TRACE(samples);
    const ScanSpec spec =
        Spec({.seed = 1}, samples, {.ascans_per_bscan = 64, .bscans_per_volume = 4, .volumes = 1});
    ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
    const auto raw = Take<uint16_t>(spec, 256, 256);
    EXPECT_LT(*std::max_element(raw.begin(), raw.end()), 4095);
    std::vector<double> background(static_cast<size_t>(samples));
    for (size_t i = 0; i < raw.size(); ++i)
      background[i % static_cast<size_t>(samples)] += raw[i] / 256.0;
    const int64_t depth = scan.chain.depth;
    std::vector<double> grey(static_cast<size_t>(depth)), db;  // db: [A-scan, z]
    for (int64_t x = 0; x < 64; ++x) {
      const auto ascan = Ascan(scan, Record(raw, 64 + x, samples), background);
      for (size_t z = 0; z < grey.size(); ++z)
        db.push_back(20 * std::log10(std::max(ascan[z], 1e-9)));
    }
    for (const double value : db) {
      EXPECT_GT(value, scan.chain.level_lo);
      EXPECT_LT(value, scan.chain.level_hi);
    }
    std::vector<double> sorted = db;
    std::sort(sorted.begin(), sorted.end());
    const double black = sorted[sorted.size() / 100], white = sorted[sorted.size() * 998 / 1000];
    for (size_t i = 0; i < db.size(); ++i)
      grey[i % grey.size()] += std::clamp((db[i] - black) / (white - black), 0.0, 1.0) / 64;
    const auto mean = [&](double from, double to) {
      double sum = 0;
      const auto a = static_cast<int64_t>(from * static_cast<double>(depth)),
                 b = static_cast<int64_t>(to * static_cast<double>(depth));
      for (int64_t z = a; z < b; ++z) sum += grey[static_cast<size_t>(z)];
      return sum / static_cast<double>(b - a);
    };
    const double scale =
        samples == 256 ? 1450.0 / 1914 : 1;  // the phantom of short records fills the range
    const double above = mean(0.03 / scale, 0.1 / scale), tissue = mean(0.25 / scale, 0.4 / scale),
                 below = mean(0.75 / scale, 0.759 / scale);
    EXPECT_LT(above, tissue - 0.2);
    EXPECT_GT(tissue, 0.4);
    EXPECT_LT(tissue, 0.9);
    EXPECT_LT(below, tissue - 0.15);
  }
}

// Extremes within the documented ranges compute without overflow (sanitizers check) and give counts
// in range.
TEST(SimulatedSourceTest, ExtremesStayInRange) {
  const SimulatedSource extremes[] = {
      {.seed = ~uint64_t{0}, .dispersion_a2 = 1, .dispersion_a3 = -1},
      {.centre_wavelength_nm = 400,
       .bandwidth_nm = 399,
       .nonlinearity = -0.2,
       .motion_um_per_volume = 1e6,
       .scatterers = 10000},
      {.centre_wavelength_nm = 2000,
       .bandwidth_nm = 0.001,
       .nonlinearity = 0.2,
       .noise_counts = 1e4,
       .fixed_pattern = 0.5,
       .adc_bits = 16},
      {.layers = {
           {.depth_um = 1e6, .reflectivity = 0.2, .tilt_um_per_mm = 1e4, .waviness_um = 1e4}}}};
  for (const SimulatedSource& source : extremes) {
    for (const int64_t samples : {16, 65536}) {
      RasterPattern pattern = kSmall;
      pattern.extent_x_mm = pattern.extent_y_mm = 1e4;
      const auto raw = Take<uint16_t>(Spec(source, samples, pattern), 4, 4);
      EXPECT_LE(*std::max_element(raw.begin(), raw.end()), source.adc_bits == 16 ? 65535 : 4095);
    }
  }
}

TEST(SimulatedSourceTest, RealTimeWaitsAndStops) {
  ScanSpec spec = Spec({}, 64, kSmall);
  std::get<SimulatedSource>(spec.source).as_fast_as_possible = false;
  spec.acquisition.record_rate_hz = 2000;
  ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
  ASSERT_OK_AND_ASSIGN(const auto source, OpenSource(scan.spec, {}, &kClock));
  EXPECT_FALSE(source->CanWait());
  std::vector<uint16_t> slot(64 * 200);
  std::stop_source stop;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK_AND_ASSIGN(SourceBlock block, source->Next(slot.data(), 60, stop.get_token()));
  EXPECT_EQ(block.records, 60);
  EXPECT_GT(block.acquired.monotonic_ns, 0);
  ASSERT_OK_AND_ASSIGN(block, source->Skip(40, stop.get_token()));
  EXPECT_EQ(block.first_record, 60);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  ASSERT_OK_AND_ASSIGN(block, source->Next(slot.data(), 10, stop.get_token()));
  EXPECT_EQ(block.first_record, 100);
  // A gap does not change the records behind it.
  const auto all = Take<uint16_t>(Spec({}, 64, kSmall), 110, 110);
  EXPECT_TRUE(std::equal(slot.begin(), slot.begin() + 640, all.begin() + 6400));
  ASSERT_OK_AND_ASSIGN(const ResolvedScan fast, ResolveScan(Spec({}, 64, kSmall), {}));
  ASSERT_OK_AND_ASSIGN(const auto fast_source, OpenSource(fast.spec, {}, &kClock));
  EXPECT_TRUE(fast_source->CanWait());
}

TEST(SimulatedSourceTest, StopEndsNextAndSkip) {
  for (const double rate : {1e-12, 1e-3}) {
    for (const bool skip : {false, true}) {
      ScanSpec spec = Spec({}, 64, kSmall);
      std::get<SimulatedSource>(spec.source).as_fast_as_possible = false;
      spec.acquisition.record_rate_hz = rate;
      ASSERT_OK_AND_ASSIGN(const ResolvedScan scan, ResolveScan(spec, {}));
      ASSERT_OK_AND_ASSIGN(const auto source, OpenSource(scan.spec, {}, &kClock));
      std::vector<uint16_t> slot(64 * 10);
      std::stop_source stop;
      std::thread stopper([&] { stop.request_stop(); });
      const auto block = skip ? source->Skip(10, stop.get_token())
                              : source->Next(slot.data(), 10, stop.get_token());
      stopper.join();
      ASSERT_THAT(block, IsOk());
      EXPECT_EQ(block->records, 0);
    }
  }
}

}  // namespace
}  // namespace octavo::engine
