#include "gpu/spectral.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "gpu/spectral_design.h"
#include "tests/gpu/spectral_model.h"
#include "tests/support/backend_param.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BackendTest;
using testing::IsError;
using testing::IsOk;

// Tolerances of the acceptance rules: relative to full scale for linear values, dB above -100 dB of full scale, counts.
constexpr double kLinearTolerance = 5e-6, kDbTolerance = 0.05;
constexpr int64_t kX = 20, kY = 3;

struct Case {
  std::string name;
  int64_t samples = 1024;
  std::function<void(SpectralConfig&)> change = [](SpectralConfig&) {};
};

SpectralConfig Base(int64_t samples) {
  SpectralConfig c;
  c.samples_per_record = samples;
  c.max_records_per_block = 256;
  c.window = MakeWindow(WindowKind::kHann, samples);
  c.fft_length = NextFastLength(samples);
  c.depth = c.fft_length / 2;
  c.value = math::Value::kMagnitude;
  c.output = DType::kF32;
  return c;
}

void Warp(SpectralConfig& c, math::Interpolation kind) {
  c.interpolation = kind;
  const int64_t s = c.samples_per_record;
  for (int64_t j = 0; j < s; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(s - 1);
    c.k_index.push_back(static_cast<float>((u + 0.08 * u * (1 - u)) * static_cast<double>(s - 1)));
  }
  c.k_index.back() = static_cast<float>(s - 1);
}

std::vector<Case> Cases() {
  using math::Interpolation;
  std::vector<Case> cases;
  for (const int64_t n : {512, 1000, 1024, 1536, 2048, 960}) cases.push_back({"plain", n});
  for (const int64_t n : {512, 1000, 1024, 1536}) {
    cases.push_back({"cubic_dispersion_db_u8", n, [](SpectralConfig& c) {
                       Warp(c, Interpolation::kCubic);
                       c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, c.samples_per_record);
                       c.value = math::Value::kDb;
                       c.output = DType::kU8;
                       c.has_levels = true;
                       c.level_lo = -10;
                       c.level_hi = 60;
                     }});
    cases.push_back({"linear", n, [](SpectralConfig& c) { Warp(c, Interpolation::kLinear); }});
    cases.push_back({"cubic", n, [](SpectralConfig& c) { Warp(c, Interpolation::kCubic); }});
  }
  cases.push_back({"odd_samples", 1001, [](SpectralConfig& c) { c.raw_type = DType::kU8; }});
  cases.push_back({"padded_to_2048", 1024, [](SpectralConfig& c) { c.fft_length = 2048, c.depth = 1024; }});
  cases.push_back({"padded_to_3000", 1024, [](SpectralConfig& c) { c.fft_length = 3000, c.depth = 701; }});
  cases.push_back({"bins_37_to_336", 1024, [](SpectralConfig& c) { c.first_bin = 37, c.depth = 300; }});
  cases.push_back({"all_bins", 512, [](SpectralConfig& c) { c.depth = 512; }});
  cases.push_back({"u8", 1024, [](SpectralConfig& c) { c.raw_type = DType::kU8; }});
  cases.push_back({"i16", 1024, [](SpectralConfig& c) { c.raw_type = DType::kI16; }});
  cases.push_back({"f32", 1024, [](SpectralConfig& c) { c.raw_type = DType::kF32; }});
  cases.push_back({"power", 1024, [](SpectralConfig& c) { c.value = math::Value::kPower; }});
  cases.push_back({"db_f32", 1024, [](SpectralConfig& c) { c.value = math::Value::kDb; }});
  cases.push_back({"db_f32_levels", 1024, [](SpectralConfig& c) {
                     c.value = math::Value::kDb, c.has_levels = true, c.level_lo = 0, c.level_hi = 100;
                   }});
  cases.push_back({"magnitude_u16", 1024, [](SpectralConfig& c) {
                     c.output = DType::kU16, c.has_levels = true, c.level_lo = 0, c.level_hi = 300;
                   }});
  cases.push_back({"magnitude_u8_odd_depth", 1024, [](SpectralConfig& c) {
                     c.output = DType::kU8, c.has_levels = true, c.level_lo = 5, c.level_hi = 120, c.depth = 333;
                   }});
  cases.push_back({"static_background", 1024, [](SpectralConfig& c) {
                     c.background = math::Background::kStatic;
                     for (int64_t j = 0; j < 1024; ++j) c.background_spectrum.push_back(static_cast<float>(1000 + j));
                   }});
  cases.push_back({"slab", 1024, [](SpectralConfig& c) { c.slab_begin = 100, c.slab_end = 217; }});
  for (const auto kind : {WindowKind::kRect, WindowKind::kHamming, WindowKind::kGauss, WindowKind::kBlackman, WindowKind::kFlatTop}) {
    cases.push_back({"window", 512, [kind](SpectralConfig& c) { c.window = MakeWindow(kind, c.samples_per_record); }});
  }
  return cases;
}

class SpectralTest : public BackendTest {
 protected:
  // Random records of the raw type, as bytes and as numbers.
  void MakeRecords(const SpectralConfig& c, int64_t records, uint32_t seed) {
    std::mt19937 random(seed);
    const auto count = static_cast<size_t>(records * c.samples_per_record);
    values_.resize(count);
    bytes_.resize(count * static_cast<size_t>(SizeOf(c.raw_type)));
    for (size_t i = 0; i < count; ++i) {
      const auto put = [&](auto v) {
        std::memcpy(bytes_.data() + i * sizeof v, &v, sizeof v);
        values_[i] = static_cast<double>(v);
      };
      switch (c.raw_type) {
        case DType::kU8: put(static_cast<uint8_t>(random())); break;
        case DType::kI16: put(static_cast<int16_t>(random())); break;
        case DType::kF32: put(static_cast<float>(random() % 65536) / 7.0f); break;
        default: put(static_cast<uint16_t>(random() % 4096)); break;
      }
    }
  }
  std::vector<double> Record(const SpectralConfig& c, int64_t r) const {
    const auto begin = values_.begin() + r * c.samples_per_record;
    return {begin, begin + c.samples_per_record};
  }
  static double Stored(const SpectralConfig& c, const std::vector<uint8_t>& volume, size_t i) {
    if (c.output == DType::kU8) return volume[i];
    if (c.output == DType::kU16) {
      uint16_t v;
      std::memcpy(&v, volume.data() + 2 * i, 2);
      return v;
    }
    float v;
    std::memcpy(&v, volume.data() + 4 * i, 4);
    return static_cast<double>(v);
  }
  void Compare(const SpectralConfig& c, const std::vector<uint8_t>& volume, int64_t ascan, const std::vector<double>& record,
               const std::vector<double>& background, double full_scale) {
    const auto model = testing::ModelDepth(c, record, background);
    for (int64_t z = 0; z < c.depth; ++z) {
      const double magnitude = std::abs(model[static_cast<size_t>(z)]), value = testing::ModelValue(c, model[static_cast<size_t>(z)]);
      const double got = Stored(c, volume, static_cast<size_t>(ascan * c.depth + z));
      double wanted = value, tolerance = 0;
      if (c.output != DType::kF32) {
        wanted = testing::ModelInteger(c, value);
        tolerance = 1;
      } else if (c.value == math::Value::kDb) {
        if (20 * std::log10(magnitude / full_scale) < -100) continue;
        tolerance = kDbTolerance;
        if (c.has_levels) {
          wanted = (value - c.level_lo) / (static_cast<double>(c.level_hi) - c.level_lo);
          tolerance /= c.level_hi - c.level_lo;
        }
      } else {
        tolerance = kLinearTolerance * (c.value == math::Value::kPower ? full_scale * full_scale : full_scale);
      }
      ASSERT_NEAR(got, wanted, tolerance) << "A-scan " << ascan << " z " << z;
    }
  }

  std::vector<double> values_;
  std::vector<uint8_t> bytes_;
};

TEST_P(SpectralTest, AgreesWithTheModelInDoublePrecision) {
  uint32_t seed = 20261121;
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.name + " " + std::to_string(test.samples));
    SpectralConfig c = Base(test.samples);
    test.change(c);
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    // Lines with flyback, every other one backwards: 3 lines of 20 + 2 records.
    const math::RasterPlacement raster{.ascans_per_bscan = kX, .bscans_per_volume = kY, .flyback_records = 2, .bidirectional = true};
    const int64_t records = kY * (kX + 2);
    MakeRecords(c, records, ++seed);
    const double full_scale = c.raw_type == DType::kU8 ? 256 : c.raw_type == DType::kU16 ? 4096 : 65536;
    const DeviceBuffer raw = Upload(bytes_);
    const int64_t size = SizeOf(c.output), ascans = kX * kY;
    const DeviceBuffer volume = Poisoned(ascans * c.depth * size), mip = Poisoned(ascans * size), aip = Poisoned(ascans * 4);
    // In two calls, the second not at a line's start.
    const SpectralTarget target{.volume = volume.data(), .volume_ascans = ascans, .mip = mip.data(), .aip = aip.as<float>()};
    const int64_t first = 31;
    ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), first, {.raster = raster, .first_record = 0}, target), IsOk());
    ASSERT_THAT(processor->Process(stream_.ref(), raw.as<uint8_t>() + first * c.samples_per_record * SizeOf(c.raw_type),
                                   records - first, {.raster = raster, .first_record = first}, target), IsOk());
    const auto got = Download<uint8_t>(volume, static_cast<size_t>(ascans * c.depth * size));
    const auto got_mip = Download<uint8_t>(mip, static_cast<size_t>(ascans * size));
    const auto got_aip = Download<float>(aip, static_cast<size_t>(ascans));
    const std::vector<double> background(c.background_spectrum.begin(), c.background_spectrum.end());
    const int64_t z0 = c.slab_begin, z1 = c.slab_end == 0 ? c.depth : c.slab_end;
    for (int64_t r = 0; r < records; ++r) {
      const int64_t ascan = math::RasterAscan(raster, r);
      if (ascan < 0) continue;
      ASSERT_EQ(ascan / kX, r / (kX + 2));
      Compare(c, got, ascan, Record(c, r), background, full_scale);
      double most = -HUGE_VAL, sum = 0;
      for (int64_t z = z0; z < z1; ++z) {
        const double v = Stored(c, got, static_cast<size_t>(ascan * c.depth + z));
        most = std::max(most, v);
        sum += v;
      }
      ASSERT_EQ(Stored(c, got_mip, static_cast<size_t>(ascan)), most) << "MIP is the maximum of what is stored";
      const double mean = sum / static_cast<double>(z1 - z0);
      ASSERT_NEAR(got_aip[static_cast<size_t>(ascan)], mean, 1e-5 * std::max(1.0, std::abs(mean)));
    }
  }
}

// x[n] = 1000 + 500 cos(2πkn/1024): bin 0 is 1000, bin k 250.
TEST_P(SpectralTest, CosineByHand) {
  SpectralConfig c = Base(1024);
  c.raw_type = DType::kF32;
  c.window = MakeWindow(WindowKind::kRect, 1024);
  c.depth = 513;
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  for (const int64_t k : {1, 100, 511, 512}) {
    std::vector<float> record(1024);
    for (int64_t n = 0; n < 1024; ++n) {
      record[static_cast<size_t>(n)] = static_cast<float>(1000 + 500 * std::cos(2 * M_PI * static_cast<double>(k * n % 1024) / 1024));
    }
    const DeviceBuffer raw = Upload(record), volume = Poisoned(513 * 4);
    ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), 1, {.raster = {1, 1, 0, false}}, {.volume = volume.data(), .volume_ascans = 1}), IsOk());
    const auto got = Download<float>(volume, 513);
    EXPECT_NEAR(got[0], 1000, 1e-3);
    EXPECT_NEAR(got[static_cast<size_t>(k)], k == 512 ? 500 : 250, 1e-3);
    for (int64_t z = 1; z < 513; ++z) {
      if (z != k) EXPECT_LT(got[static_cast<size_t>(z)], 2e-3) << z;
    }
  }
}

TEST_P(SpectralTest, RollingBackgroundIsTheMeanOfTheLastRecords) {
  for (const DType raw_type : {DType::kU16, DType::kF32}) {
    SpectralConfig c = Base(512);
    c.raw_type = raw_type;
    c.background = math::Background::kRolling;
    c.background_window_records = 50;
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    MakeRecords(c, 200, 7);
    int64_t done = 0;
    for (const int64_t count : {7, 20, 40, 1, 90, 42}) {
      const std::vector<uint8_t> block(bytes_.begin() + done * 512 * SizeOf(raw_type),
                                       bytes_.begin() + (done + count) * 512 * SizeOf(raw_type));
      const DeviceBuffer raw = Upload(block), volume = Poisoned(count * c.depth * 4);
      ASSERT_THAT(processor->BeginBlock(stream_.ref(), raw.data(), count), IsOk());
      ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), count, {.raster = {count, 1, 0, false}},
                                     {.volume = volume.data(), .volume_ascans = count}), IsOk());
      const auto got = Download<uint8_t>(volume, static_cast<size_t>(count * c.depth * 4));
      const int64_t begin = std::max<int64_t>(0, done + count - 50);
      std::vector<double> mean(512, 0.0);
      for (int64_t r = begin; r < done + count; ++r) {
        for (size_t j = 0; j < 512; ++j) mean[j] += values_[static_cast<size_t>(r * 512) + j] / static_cast<double>(done + count - begin);
      }
      for (int64_t r = 0; r < count; r += 3) Compare(c, got, r, Record(c, done + r), mean, 65536);
      done += count;
    }
  }
}

TEST_P(SpectralTest, TablePlacementDropsAndPermutes) {
  SpectralConfig c = Base(512);
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  MakeRecords(c, 40, 3);
  std::vector<int32_t> table(40);
  for (int32_t i = 0; i < 40; ++i) table[static_cast<size_t>(i)] = i % 5 == 0 ? -1 : i == 39 ? 4000 : 39 - i;
  const DeviceBuffer raw = Upload(bytes_), places = Upload(table), volume = Poisoned(40 * c.depth * 4);
  ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), 40, {.table = places.as<int32_t>()},
                                 {.volume = volume.data(), .volume_ascans = 40}), IsOk());
  const auto got = Download<uint8_t>(volume, static_cast<size_t>(40 * c.depth * 4));
  std::vector<bool> written(40, false);
  for (int64_t r = 0; r < 39; ++r) {
    if (const int32_t at = table[static_cast<size_t>(r)]; at >= 0) {
      Compare(c, got, at, Record(c, r), {}, 4096);
      written[static_cast<size_t>(at)] = true;
    }
  }
  for (size_t a = 0; a < 40; ++a) {
    if (!written[a]) EXPECT_EQ(got[a * static_cast<size_t>(c.depth) * 4], 0xA5) << "A-scan " << a << " must stay untouched";
  }
}

TEST_P(SpectralTest, RefusesBadConfigurationsByName) {
  const std::vector<std::pair<std::string, std::function<void(SpectralConfig&)>>> bad = {
      {"samples_per_record", [](auto& c) { c.samples_per_record = 8; }},
      {"raw_type", [](auto& c) { c.raw_type = DType::kF64; }},
      {"window_values", [](auto& c) { c.window.pop_back(); }},
      {"fft_length", [](auto& c) { c.fft_length = 1022; }},
      {"fft_length", [](auto& c) { c.fft_length = 512; }},
      {"first_bin", [](auto& c) { c.first_bin = -1; }},
      {"depth", [](auto& c) { c.depth = 0; }},
      {"depth", [](auto& c) { c.first_bin = 1000, c.depth = 512; }},
      {"dtype", [](auto& c) { c.output = DType::kI16; }},
      {"levels", [](auto& c) { c.output = DType::kU8; }},
      {"levels", [](auto& c) { c.has_levels = true, c.level_lo = 3, c.level_hi = 3; }},
      {"levels", [](auto& c) { c.has_levels = true, c.level_lo = NAN, c.level_hi = 3; }},
      {"background.spectrum", [](auto& c) { c.background = math::Background::kStatic; }},
      {"background.window_records", [](auto& c) { c.background = math::Background::kRolling; }},
      {"dispersion.phase", [](auto& c) { c.phase_rad = {1, 2}; }},
      {"slab", [](auto& c) { c.slab_begin = 5, c.slab_end = 5; }},
      {"k_linearisation.index: decreases at 500", [](auto& c) { Warp(c, math::Interpolation::kLinear), c.k_index[500] = 1; }},
      {"k_linearisation.index: is 1024", [](auto& c) { Warp(c, math::Interpolation::kLinear), c.k_index[1023] = 1024; }},
  };
  for (const auto& [field, change] : bad) {
    SpectralConfig c = Base(1024);
    change(c);
    EXPECT_THAT(SpectralProcessor::Create(c, device_), IsError(absl::StatusCode::kInvalidArgument, field));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SpectralTest, ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);

TEST(GpuPresence, Cuda) {
  const auto opened = OpenDevices("cuda");
  if (!opened.ok()) GTEST_SKIP() << "cuda tests did not run: " << opened.status().message();
}

}  // namespace
}  // namespace octavo
