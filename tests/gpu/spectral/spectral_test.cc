#include "gpu/spectral/spectral.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "gpu/backend/open_devices.h"
#include "gpu/spectral/spectral_design.h"
#include "tests/gpu/spectral/spectral_fixture.h"
#include "tests/gpu/vector_targets.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using testing::BaseConfig;
using testing::IsError;
using testing::IsOk;
using testing::ModelDepth;
using testing::SpectralTest;
using testing::Spectrum;
using testing::Warp;

constexpr int64_t kX = 20, kY = 3;

struct Case {
  std::string name;
  int64_t samples = 1024;
  std::function<void(SpectralConfig&)> change = [](SpectralConfig&) {};
};

// Lengths, inputs and outputs that a backend may process in one launch, with and without
// dispersion. Records are as long as the transform or shorter; some begin at odd addresses.
void AddUsualLengths(std::vector<Case>& cases) {
  struct Input {
    DType raw_type;
    math::Packing packing = math::Packing::kNone;
  };
  const std::vector<Input> inputs = {{DType::kU8},
                                     {DType::kU16},
                                     {DType::kI16},
                                     {DType::kU16, math::Packing::kLowFirst12},
                                     {DType::kU16, math::Packing::kHighFirst12}};
  const std::vector<std::function<void(SpectralConfig&)>> outputs = {
      [](SpectralConfig& c) {
        Warp(c, math::Interpolation::kCubic);
        c.value = math::Value::kDb, c.output = DType::kU8, c.has_levels = true, c.level_lo = -10,
        c.level_hi = 60;
      },
      [](SpectralConfig& c) {
        Warp(c, math::Interpolation::kLinear);
        c.output = DType::kU16, c.has_levels = true, c.level_lo = 0, c.level_hi = 300,
        c.first_bin = 3, c.depth = 201, c.slab_begin = 7, c.slab_end = 90;
      },
      [](SpectralConfig& c) {
        Warp(c, math::Interpolation::kCubic);
        c.value = math::Value::kDb, c.output = DType::kU8, c.has_levels = true, c.level_lo = -400,
        c.level_hi = 60;
      },
      [](SpectralConfig& c) { c.value = math::Value::kPower, c.depth = 211; },
      [](SpectralConfig& c) {
        Warp(c, math::Interpolation::kCubic);
        c.value = math::Value::kDb;
        c.background = math::Background::kStatic;
        c.background_spectrum.assign(static_cast<size_t>(c.samples_per_record), 130.25f);
      }};
  size_t turn = 0;
  for (const int64_t n : {512, 1024, 1536, 2048, 3072, 4096}) {
    for (const bool dispersion : {false, true}) {
      for (const Input& input : inputs) {
        for (const int64_t samples : {n, n, n - 5}) {  // with three outputs in turn
          const auto& output = outputs[turn++ % outputs.size()];
          cases.push_back(
              {std::string(input.packing == math::Packing::kNone ? Info(input.raw_type).name
                                                                 : "12 bits") +
                   (dispersion ? " with dispersion in " : " in ") + std::to_string(n),
               samples, [=](SpectralConfig& c) {
                 c.raw_type = input.raw_type, c.packing = input.packing;
                 if (dispersion) c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, samples);
                 c.fft_length = n, c.depth = n / 2;
                 output(c);
               }});
        }
        ++turn;  // five inputs and five outputs: every pair occurs
      }
    }
  }
}

std::vector<Case> Cases() {
  using math::Interpolation;
  std::vector<Case> cases;
  // Powers of two, mixes of 2, 3 and 5, a prime, an even and an odd number with a large prime
  // factor.
  const std::vector<int64_t> lengths = {509,  512,  960,  1000, 1024, 1125,
                                        1376, 1536, 2048, 2500, 4096};
  for (const int64_t n : lengths) cases.push_back({"plain", n});
  for (const int64_t n : lengths) {
    cases.push_back({"cubic_dispersion_db_u8", n, [](SpectralConfig& c) {
                       Warp(c, Interpolation::kCubic);
                       c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, c.samples_per_record);
                       c.value = math::Value::kDb;
                       c.output = DType::kU8;
                       c.has_levels = true;
                       c.level_lo = -10;
                       c.level_hi = 60;
                     }});
    cases.push_back({"lanczos_dispersion_db_f32", n, [](SpectralConfig& c) {
                       Warp(c, Interpolation::kLanczos);
                       c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, c.samples_per_record);
                       c.value = math::Value::kDb;
                     }});
    cases.push_back({"complex", n, [](SpectralConfig& c) {
                       c.value = math::Value::kComplex, c.output = DType::kC64;
                     }});
  }
  for (const auto kind : {Interpolation::kLinear, Interpolation::kCubic, Interpolation::kLanczos}) {
    for (const int64_t n : {1000, 1024, 1376})
      cases.push_back({"interpolation", n, [kind](SpectralConfig& c) { Warp(c, kind); }});
  }
  for (const int64_t n : {509, 1024, 1376}) {
    cases.push_back({"complex_dispersion", n, [](SpectralConfig& c) {
                       c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, c.samples_per_record);
                       c.value = math::Value::kComplex, c.output = DType::kC64;
                     }});
    cases.push_back({"complex_bins_37_to_236", n, [](SpectralConfig& c) {
                       c.value = math::Value::kComplex, c.output = DType::kC64, c.first_bin = 37,
                       c.depth = 200, c.slab_begin = 3, c.slab_end = 100;
                     }});
    cases.push_back({"all_bins_real", n, [](SpectralConfig& c) {
                       c.depth = c.fft_length, c.value = math::Value::kReal;
                     }});
    cases.push_back({"all_bins_complex_dispersion", n, [](SpectralConfig& c) {
                       c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, c.samples_per_record);
                       c.depth = c.fft_length, c.value = math::Value::kComplex,
                       c.output = DType::kC64;
                     }});
    cases.push_back(
        {"padded_to_1399", n, [](SpectralConfig& c) { c.fft_length = 1399, c.depth = 699; }});
    cases.push_back(
        {"padded_to_1398", n, [](SpectralConfig& c) { c.fft_length = 1398, c.depth = 699; }});
    cases.push_back({"real_i8", n, [](SpectralConfig& c) {
                       c.value = math::Value::kReal, c.output = DType::kI8, c.has_levels = true,
                       c.level_lo = -60, c.level_hi = 60;
                     }});
    cases.push_back({"real_f16", n, [](SpectralConfig& c) {
                       c.value = math::Value::kReal, c.output = DType::kF16;
                     }});
    cases.push_back({"magnitude_f16_odd_depth", n,
                     [](SpectralConfig& c) { c.output = DType::kF16, c.depth = 211; }});
    cases.push_back({"db_f16_levels", n, [](SpectralConfig& c) {
                       c.output = DType::kF16, c.value = math::Value::kDb, c.has_levels = true,
                       c.level_lo = 0, c.level_hi = 100;
                     }});
    cases.push_back({"db_i8_odd_depth", n, [](SpectralConfig& c) {
                       c.output = DType::kI8, c.value = math::Value::kDb, c.has_levels = true,
                       c.level_lo = 10, c.level_hi = 50, c.depth = 213;
                     }});
    for (const auto packing : {math::Packing::kLowFirst12, math::Packing::kHighFirst12}) {
      cases.push_back({"packed", n, [packing](SpectralConfig& c) { c.packing = packing; }});
      cases.push_back({"packed_3_channels", n, [packing](SpectralConfig& c) {
                         c.packing = packing, c.channels = 3, c.channel = 2;
                       }});
      cases.push_back({"packed_average_3", n, [packing](SpectralConfig& c) {
                         c.packing = packing, c.record_average = 3;
                       }});
    }
    for (const auto raw_type : {DType::kU8, DType::kU16, DType::kI16, DType::kF32}) {
      cases.push_back({"2_channels", n, [raw_type](SpectralConfig& c) {
                         c.raw_type = raw_type, c.channels = 2, c.channel = 1;
                       }});
      cases.push_back({"3_channels_average_4", n, [raw_type](SpectralConfig& c) {
                         c.raw_type = raw_type, c.channels = 3, c.channel = 0, c.record_average = 4;
                       }});
    }
    cases.push_back({"static_background_average_2", n, [](SpectralConfig& c) {
                       c.record_average = 2;
                       c.background = math::Background::kStatic;
                       c.background_spectrum.assign(static_cast<size_t>(c.samples_per_record),
                                                    2047.5f);
                     }});
    for (const auto pattern : {math::FixedPattern::kMean, math::FixedPattern::kQuietSegment}) {
      cases.push_back(
          {"fixed_pattern", n, [pattern](SpectralConfig& c) { c.fixed_pattern = pattern; }});
      cases.push_back({"fixed_pattern_bscan_db_u8", n, [pattern](SpectralConfig& c) {
                         c.fixed_pattern = pattern, c.background = math::Background::kBscan;
                         c.phase_rad = MakeDispersionPhase(3e-5, 1e-8, c.samples_per_record);
                         c.value = math::Value::kDb, c.output = DType::kU8, c.has_levels = true,
                         c.level_lo = -10, c.level_hi = 60;
                       }});
      cases.push_back({"fixed_pattern_complex", n, [pattern](SpectralConfig& c) {
                         c.fixed_pattern = pattern, c.value = math::Value::kComplex,
                         c.output = DType::kC64, c.first_bin = 5, c.depth = 203;
                       }});
    }
    cases.push_back({"bscan_background", n,
                     [](SpectralConfig& c) { c.background = math::Background::kBscan; }});
    cases.push_back({"bscan_background_packed_2_channels_average_2", n, [](SpectralConfig& c) {
                       c.background = math::Background::kBscan,
                       c.packing = math::Packing::kLowFirst12, c.channels = 2, c.channel = 1,
                       c.record_average = 2;
                     }});
  }
  cases.push_back({"odd_samples", 1001, [](SpectralConfig& c) { c.raw_type = DType::kU8; }});
  cases.push_back(
      {"padded_to_2048", 1024, [](SpectralConfig& c) { c.fft_length = 2048, c.depth = 1024; }});
  cases.push_back(
      {"padded_to_3000", 1024, [](SpectralConfig& c) { c.fft_length = 3000, c.depth = 701; }});
  cases.push_back(
      {"bins_37_to_336", 1024, [](SpectralConfig& c) { c.first_bin = 37, c.depth = 300; }});
  cases.push_back({"all_bins", 512, [](SpectralConfig& c) { c.depth = 512; }});
  cases.push_back({"u8", 1024, [](SpectralConfig& c) { c.raw_type = DType::kU8; }});
  cases.push_back({"i16", 1024, [](SpectralConfig& c) { c.raw_type = DType::kI16; }});
  cases.push_back({"f32", 1024, [](SpectralConfig& c) { c.raw_type = DType::kF32; }});
  cases.push_back({"power", 1024, [](SpectralConfig& c) { c.value = math::Value::kPower; }});
  cases.push_back({"db_f32", 1024, [](SpectralConfig& c) { c.value = math::Value::kDb; }});
  cases.push_back({"db_f32_levels", 1024, [](SpectralConfig& c) {
                     c.value = math::Value::kDb, c.has_levels = true, c.level_lo = 0,
                     c.level_hi = 100;
                   }});
  cases.push_back({"magnitude_u16", 1024, [](SpectralConfig& c) {
                     c.output = DType::kU16, c.has_levels = true, c.level_lo = 0, c.level_hi = 300;
                   }});
  cases.push_back({"magnitude_u8_odd_depth", 1024, [](SpectralConfig& c) {
                     c.output = DType::kU8, c.has_levels = true, c.level_lo = 5, c.level_hi = 120,
                     c.depth = 333;
                   }});
  cases.push_back({"static_background", 1024, [](SpectralConfig& c) {
                     c.background = math::Background::kStatic;
                     for (int64_t j = 0; j < 1024; ++j)
                       c.background_spectrum.push_back(static_cast<float>(1000 + j));
                   }});
  cases.push_back({"slab", 1024, [](SpectralConfig& c) { c.slab_begin = 100, c.slab_end = 217; }});
  AddUsualLengths(cases);
  for (const auto kind : {WindowKind::kRect, WindowKind::kHamming, WindowKind::kGauss,
                          WindowKind::kBlackman, WindowKind::kFlatTop}) {
    cases.push_back({"window", 512, [kind](SpectralConfig& c) {
                       c.window = MakeWindow(kind, c.samples_per_record);
                     }});
  }
  return cases;
}

class SpectralModelTest : public SpectralTest {
 protected:
  void Agrees(const Case& test, uint32_t seed) {
    SCOPED_TRACE(test.name + " " + std::to_string(test.samples));
    SpectralConfig c = BaseConfig(test.samples);
    test.change(c);
    if (c.background == math::Background::kBscan || c.fixed_pattern != math::FixedPattern::kNone)
      c.bscan_records = kX;
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    EXPECT_LE(processor->device_bytes(), SpectralProcessor::DeviceBytes(c, device_));
    // Lines with flyback, every other line backwards: 3 lines of 20 + 2 records.
    const math::RasterPlacement raster{.ascans_per_bscan = kX,
                                       .bscans_per_volume = kY,
                                       .flyback_records = 2,
                                       .bidirectional = true};
    const int64_t line = kX + 2, records = kY * line;
    MakeRecords(c, records, seed, line, 6,
                c.fixed_pattern == math::FixedPattern::kQuietSegment ? 8 : 6);
    const DeviceBuffer raw = Upload(bytes_);
    const int64_t size = SizeOf(c.output), mip_size = SizeOf(ProjectionOf(c.output)),
                  ascans = kX * kY;
    const DeviceBuffer volume = Poisoned(ascans * c.depth * size),
                       mip = Poisoned(ascans * mip_size), aip = Poisoned(ascans * 4);
    // Two calls; the second does not begin at the start of a line.
    const SpectralTarget target{.volume = volume.data(),
                                .volume_ascans = ascans,
                                .mip = mip.data(),
                                .aip = aip.as<float>()};
    const int64_t first = 31;
    ASSERT_THAT(processor->BeginVolume(stream_.ref()), IsOk());
    ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), first,
                                   {.raster = raster, .first_record = 0}, target),
                IsOk());
    ASSERT_THAT(
        processor->Process(stream_.ref(), raw.as<uint8_t>() + first * RecordBytes(c),
                           records - first, {.raster = raster, .first_record = first}, target),
        IsOk());
    ASSERT_THAT(processor->EndVolume(stream_.ref()), IsOk());
    const auto got = Download<uint8_t>(volume, static_cast<size_t>(ascans * c.depth * size));
    const auto got_mip = Download<uint8_t>(mip, static_cast<size_t>(ascans * mip_size));
    const auto got_aip = Download<float>(aip, static_cast<size_t>(ascans));
    const int64_t z0 = c.slab_begin, z1 = c.slab_end == 0 ? c.depth : c.slab_end;
    // The model is slow: of long records it checks only a part, a different one in each line. The
    // fixed pattern needs whole lines.
    const int64_t step = c.fixed_pattern != math::FixedPattern::kNone ? 1
                         : c.fft_length > 2048                        ? 19
                         : c.fft_length > 1024                        ? 9
                                                                      : 5;
    for (int64_t y = 0; y < kY; ++y) {
      if (c.fixed_pattern != math::FixedPattern::kNone && y != 1)
        continue;  // the line that the two calls divide
      std::vector<double> background(c.background_spectrum.begin(), c.background_spectrum.end());
      if (c.background == math::Background::kBscan) background = Mean(c, y * line, y * line + kX);
      std::vector<Spectrum> spectra;
      std::vector<int64_t> ascans_of;
      for (int64_t x = y; x < kX + y; x += step) {
        const int64_t record = y * line + x % kX;
        spectra.push_back(ModelDepth(c, Record(c, record), background));
        ascans_of.push_back(math::RasterAscan(raster, record));
      }
      if (c.fixed_pattern != math::FixedPattern::kNone) {
        std::rotate(spectra.begin(), spectra.end() - y, spectra.end());
        std::rotate(ascans_of.begin(), ascans_of.end() - y, ascans_of.end());
        const Spectrum pattern = testing::ModelPattern(c, spectra);
        for (Spectrum& spectrum : spectra) {
          for (size_t z = 0; z < spectrum.size(); ++z) spectrum[z] -= pattern[z];
        }
      }
      for (size_t i = 0; i < spectra.size(); ++i) {
        ASSERT_EQ(ascans_of[i] / kX, y);
        Compare(c, got, ascans_of[i], spectra[i]);
        if (HasFatalFailure()) return;
      }
    }
    for (int64_t ascan = 0; ascan < ascans; ++ascan) {
      double most = -HUGE_VAL, sum = 0;
      for (int64_t z = z0; z < z1; ++z) {
        const double v = Stored(c, got, static_cast<size_t>(ascan * c.depth + z));
        most = std::max(most, v);
        sum += v;
      }
      const double got_most =
          NumberAt(ProjectionOf(c.output), got_mip.data(), static_cast<size_t>(ascan));
      // Magnitudes of complex numbers are rounded once more.
      ASSERT_NEAR(got_most, most, c.output == DType::kC64 ? 1e-6 * most : 0)
          << "MIP is the maximum of what is stored";
      const double mean = sum / static_cast<double>(z1 - z0);
      ASSERT_NEAR(got_aip[static_cast<size_t>(ascan)], mean, 1e-5 * std::max(1.0, std::abs(mean)));
    }
  }
};

TEST_P(SpectralModelTest, AgreesInDoublePrecision) {
  uint32_t seed = 20261121;
  for (const Case& test : Cases()) {
    Agrees(test, ++seed);
    if (HasFatalFailure()) return;
  }
}

// A part of the cases with each kind of vectors of this processor, and with none; another part with
// each.
TEST_P(SpectralModelTest, AgreesOnEveryTarget) {
  if (device_.info().backend != "host") GTEST_SKIP() << "vectors are the host's";
  const std::vector<Case> cases = Cases();
  constexpr size_t kPart = 6;
  size_t part = 0;
  testing::OnEveryTarget([&](int64_t target) {
    SCOPED_TRACE(hwy::TargetName(target));
    for (size_t i = part++ % kPart; i < cases.size() && !HasFatalFailure(); i += kPart)
      Agrees(cases[i], static_cast<uint32_t>(20261129 + i));
  });
}

// 10 log10 of the very power that the same chain stores, from far below the floor to the largest
// numbers, with each kind of vectors.
TEST_P(SpectralTest, DecibelsAreThoseOfThePower) {
  if (device_.info().backend != "host") GTEST_SKIP() << "vectors are the host's";
  constexpr int64_t kRecords = 37, kSamples = 256, kDepth = 128;
  std::mt19937 random(20261129);
  std::vector<float> records(static_cast<size_t>(kRecords * kSamples));
  for (int64_t r = 0; r < kRecords; ++r) {
    const float size = r == 0 ? 0 : std::pow(10.0f, static_cast<float>(r - 22));
    for (int64_t j = 0; j < kSamples; ++j)
      records[static_cast<size_t>(r * kSamples + j)] = static_cast<float>(random() % 4096) * size;
  }
  records.back() = NAN;
  const DeviceBuffer raw = Upload(records);
  testing::OnEveryTarget([&](int64_t target) {
    std::vector<float> got[2];
    for (const auto value : {math::Value::kPower, math::Value::kDb}) {
      SpectralConfig c = BaseConfig(kSamples);
      c.raw_type = DType::kF32;
      c.value = value;
      ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
      const DeviceBuffer volume = Poisoned(kRecords * kDepth * 4);
      ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), kRecords,
                                     {.raster = {kRecords, 1, 0, false}},
                                     {.volume = volume.data(), .volume_ascans = kRecords}),
                  IsOk());
      got[value == math::Value::kDb ? 1 : 0] =
          Download<float>(volume, static_cast<size_t>(kRecords * kDepth));
    }
    for (size_t i = 0; i < got[0].size(); ++i) {
      const double power = static_cast<double>(got[0][i]), db = static_cast<double>(got[1][i]);
      if (i / kDepth == kRecords - 1) {
        ASSERT_TRUE(std::isnan(power) && std::isnan(db)) << power << " " << db;
        continue;
      }
      const double wanted =
          10 * std::log10(std::max(power, static_cast<double>(math::kPowerFloor)));
      ASSERT_NEAR(db, wanted, 1e-5 + 1.5e-7 * std::abs(wanted))
          << power << " with " << hwy::TargetName(target);
    }
  });
}

// x[n] = 1000 + 500 cos(2πkn/1024): bin 0 is 1000, bin k 250.
TEST_P(SpectralTest, CosineByHand) {
  SpectralConfig c = BaseConfig(1024);
  c.raw_type = DType::kF32;
  c.window = MakeWindow(WindowKind::kRect, 1024);
  c.depth = 513;
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  for (const int64_t k : {1, 100, 511, 512}) {
    std::vector<float> record(1024);
    for (int64_t n = 0; n < 1024; ++n) {
      record[static_cast<size_t>(n)] = static_cast<float>(
          1000 + 500 * std::cos(2 * M_PI * static_cast<double>(k * n % 1024) / 1024));
    }
    const DeviceBuffer raw = Upload(record), volume = Poisoned(513 * 4);
    ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), 1, {.raster = {1, 1, 0, false}},
                                   {.volume = volume.data(), .volume_ascans = 1}),
                IsOk());
    const auto got = Download<float>(volume, 513);
    EXPECT_NEAR(got[0], 1000, 1e-3);
    EXPECT_NEAR(got[static_cast<size_t>(k)], k == 512 ? 500 : 250, 1e-3);
    for (int64_t z = 1; z < 513; ++z) {
      if (z != k) EXPECT_LT(got[static_cast<size_t>(z)], 2e-3) << z;
    }
  }
}

// Large numbers in a deep A-scan: their sum is far beyond the whole numbers that a float can count.
TEST_P(SpectralTest, MeansOfDeepAscansAreExact) {
  for (const auto& [fft, depth] :
       std::vector<std::pair<int64_t, int64_t>>{{4099, 2049}, {65537, 30011}, {131072, 65536}}) {
    SpectralConfig c = BaseConfig(600);
    c.fft_length = fft;
    c.depth = depth;
    c.output = DType::kU16, c.has_levels = true, c.level_lo = -1000, c.level_hi = 1;
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    MakeRecords(c, 5, 21);
    const DeviceBuffer raw = Upload(bytes_), volume = Poisoned(5 * depth * 2),
                       aip = Poisoned(5 * 4);
    ASSERT_THAT(processor->Process(
                    stream_.ref(), raw.data(), 5, {.raster = {5, 1, 0, false}, .first_record = 0},
                    {.volume = volume.data(), .volume_ascans = 5, .aip = aip.as<float>()}),
                IsOk());
    const auto got = Download<uint16_t>(volume, static_cast<size_t>(5 * depth));
    const auto means = Download<float>(aip, 5);
    for (int64_t a = 0; a < 5; ++a) {
      const auto begin = got.begin() + a * depth;
      const double mean = std::accumulate(begin, begin + depth, 0.0) / static_cast<double>(depth);
      EXPECT_NEAR(static_cast<double>(means[static_cast<size_t>(a)]), mean, 1e-6 * mean)
          << depth << " depth samples";
    }
  }
}

// The plan reports which form a backend uses, and why it does not use the other.
TEST_P(SpectralTest, PlanSaysWhatItDoes) {
  if (device_.info().backend != "cuda") GTEST_SKIP() << "one form only";
  const std::vector<std::pair<Case, std::string>> cases = {
      {{"", 512}, "512 = 16 x 16 x 2"},
      {{"", 1024}, "two A-scans as one complex transform"},
      {{"", 1500, [](SpectralConfig& c) { c.fft_length = 1536, c.depth = 768; }}, "one launch"},
      {{"", 4096, [](SpectralConfig& c) { c.packing = math::Packing::kHighFirst12; }},
       "4096 = 32 x 32 x 4"},
      {{"", 1000}, "not fused: transforms of 512, 1024"},
      {{"", 1024, [](SpectralConfig& c) { c.raw_type = DType::kF32; }},
       "not fused: u8, u16, i16 and 12-bit input"},
      {{"", 1024, [](SpectralConfig& c) { c.depth = 513; }}, "not fused: the lower half"}};
  for (const auto& [test, words] : cases) {
    SpectralConfig c = BaseConfig(test.samples);
    test.change(c);
    ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
    EXPECT_NE(processor->Describe().find(words), std::string::npos) << words << " is not in\n"
                                                                    << processor->Describe();
  }
}

TEST_P(SpectralTest, TablePlacementDropsAndPermutes) {
  SpectralConfig c = BaseConfig(512);
  ASSERT_OK_AND_ASSIGN(auto processor, SpectralProcessor::Create(c, device_));
  MakeRecords(c, 40, 3);
  std::vector<int32_t> table(40);
  for (int32_t i = 0; i < 40; ++i)
    table[static_cast<size_t>(i)] = i % 5 == 0 ? -1 : i == 39 ? 4000 : 39 - i;
  const DeviceBuffer raw = Upload(bytes_), places = Upload(table),
                     volume = Poisoned(40 * c.depth * 4);
  ASSERT_THAT(processor->Process(stream_.ref(), raw.data(), 40, {.table = places.as<int32_t>()},
                                 {.volume = volume.data(), .volume_ascans = 40}),
              IsOk());
  const auto got = Download<uint8_t>(volume, static_cast<size_t>(40 * c.depth * 4));
  std::vector<bool> written(40, false);
  for (int64_t r = 0; r < 39; ++r) {
    if (const int32_t at = table[static_cast<size_t>(r)]; at >= 0) {
      Compare(c, got, at, ModelDepth(c, Record(c, r), {}));
      written[static_cast<size_t>(at)] = true;
    }
  }
  for (size_t a = 0; a < 40; ++a) {
    if (!written[a])
      EXPECT_EQ(got[a * static_cast<size_t>(c.depth) * 4], 0xA5)
          << "A-scan " << a << " must stay untouched";
  }
}

TEST_P(SpectralTest, RefusesBadConfigurationsByName) {
  const std::vector<std::pair<std::string, std::function<void(SpectralConfig&)>>> bad = {
      {"samples_per_record", [](auto& c) { c.samples_per_record = 8; }},
      {"raw_type", [](auto& c) { c.raw_type = DType::kF64; }},
      {"window_values", [](auto& c) { c.window.pop_back(); }},
      {"fft_length", [](auto& c) { c.fft_length = 131073; }},
      {"raw_type",
       [](auto& c) { c.packing = math::Packing::kLowFirst12, c.raw_type = DType::kU8; }},
      {"channels", [](auto& c) { c.channels = 0; }},
      {"channels", [](auto& c) { c.channels = 17; }},
      {"channel", [](auto& c) { c.channels = 2, c.channel = 2; }},
      {"channel", [](auto& c) { c.channel = -1; }},
      {"record_average", [](auto& c) { c.record_average = 0; }},
      {"record_average", [](auto& c) { c.record_average = 257; }},
      {"bscan_records", [](auto& c) { c.background = math::Background::kBscan; }},
      {"bscan_records", [](auto& c) { c.bscan_records = 20; }},
      {"bscan_records",
       [](auto& c) { c.fixed_pattern = math::FixedPattern::kMean, c.bscan_records = 1; }},
      {"bscan_records",
       [](auto& c) { c.fixed_pattern = math::FixedPattern::kQuietSegment, c.bscan_records = 17; }},
      {"repeats", [](auto& c) { c.repeats = 0; }},
      {"repeats",
       [](auto& c) { c.repeats = 2, c.repeat_ascans = 10, c.value = math::Value::kReal; }},
      {"repeat_ascans", [](auto& c) { c.repeats = 2; }},
      {"repeat_ascans", [](auto& c) { c.repeat_ascans = 5; }},
      {"dtype", [](auto& c) { c.output = DType::kC64; }},
      {"dtype", [](auto& c) { c.value = math::Value::kComplex; }},
      {"dtype", [](auto& c) { c.output = DType::kF64; }},
      {"levels", [](auto& c) { c.output = DType::kI8; }},
      {"levels",
       [](auto& c) {
         c.value = math::Value::kComplex, c.output = DType::kC64;
         c.has_levels = true, c.level_lo = 0, c.level_hi = 3;
       }},
      {"fft_length", [](auto& c) { c.fft_length = 512; }},
      {"first_bin", [](auto& c) { c.first_bin = -1; }},
      {"depth", [](auto& c) { c.depth = 0; }},
      {"depth", [](auto& c) { c.first_bin = 1000, c.depth = 512; }},
      {"dtype", [](auto& c) { c.output = DType::kI16; }},
      {"levels", [](auto& c) { c.output = DType::kU8; }},
      {"levels", [](auto& c) { c.has_levels = true, c.level_lo = 3, c.level_hi = 3; }},
      {"levels", [](auto& c) { c.has_levels = true, c.level_lo = NAN, c.level_hi = 3; }},
      {"background.spectrum", [](auto& c) { c.background = math::Background::kStatic; }},
      {"background.group_records", [](auto& c) { c.background = math::Background::kRolling; }},
      {"background.window_records",
       [](auto& c) {
         c.background = math::Background::kRolling, c.background_group_records = 2,
         c.background_window_records = 2 * 4096 + 1;
       }},
      {"dispersion.phase",
       [](auto& c) {
         c.phase_rad = {1, 2};
       }},
      {"slab", [](auto& c) { c.slab_begin = 5, c.slab_end = 5; }},
      {"k_linearisation.index: decreases at 500",
       [](auto& c) { Warp(c, math::Interpolation::kLinear), c.k_index[500] = 1; }},
      {"k_linearisation.index: is 1024",
       [](auto& c) { Warp(c, math::Interpolation::kLinear), c.k_index[1023] = 1024; }},
  };
  for (const auto& [field, change] : bad) {
    SpectralConfig c = BaseConfig(1024);
    change(c);
    EXPECT_THAT(SpectralProcessor::Create(c, device_),
                IsError(absl::StatusCode::kInvalidArgument, field));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SpectralModelTest,
                         ::testing::ValuesIn(testing::AvailableBackends()), testing::BackendName);
INSTANTIATE_TEST_SUITE_P(Backends, SpectralTest, ::testing::ValuesIn(testing::AvailableBackends()),
                         testing::BackendName);

TEST(GpuPresence, Cuda) {
  const auto opened = OpenDevices("cuda");
  if (!opened.ok()) GTEST_SKIP() << "cuda tests did not run: " << opened.status().message();
}

}  // namespace
}  // namespace octavo
