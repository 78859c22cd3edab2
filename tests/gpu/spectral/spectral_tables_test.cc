#include "gpu/spectral/spectral_tables.h"

#include <cmath>
#include <complex>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "gpu/spectral/spectral_design.h"

namespace octavo {
namespace {

SpectralConfig Config(int64_t samples, int64_t fft_length, bool dispersion) {
  SpectralConfig c;
  c.samples_per_record = samples;
  c.fft_length = fft_length;
  c.interpolation = math::Interpolation::kCubic;
  for (int64_t j = 0; j < samples; ++j)
    c.k_index.push_back(static_cast<double>(samples - 1) *
                        std::pow(static_cast<double>(j) / static_cast<double>(samples - 1), 1.05));
  c.window = MakeWindow(WindowKind::kFlatTop, samples);
  if (dispersion) c.phase_rad = MakeDispersionPhase(3e-5, 1e-9, samples);
  return c;
}

TEST(SpectralTablesTest, WindowIsWindowTimesDispersionOverTheLength) {
  for (const int64_t length : {1024, 1000, 1536}) {
    for (const bool dispersion : {false, true}) {
      const SpectralConfig c = Config(1000, length, dispersion);
      const SpectralTables tables = MakeSpectralTables(c);
      ASSERT_EQ(std::ssize(tables.window), 1000);
      for (size_t j = 0; j < 1000; ++j) {
        const double phase = dispersion ? static_cast<double>(c.phase_rad[j]) : 0;
        const std::complex<double> wanted = static_cast<double>(c.window[j]) *
                                            std::exp(std::complex<double>(0, phase)) /
                                            static_cast<double>(length);
        EXPECT_NEAR(tables.window[j].real(), wanted.real(), 1e-18);
        EXPECT_NEAR(tables.window[j].imag(), wanted.imag(), 1e-18);
      }
      EXPECT_EQ(TransformsReal(c), !dispersion);
    }
  }
}

TEST(SpectralTablesTest, WeightsAreThoseOfTheFractionAndSumToOne) {
  for (const auto kind :
       {math::Interpolation::kLinear, math::Interpolation::kCubic, math::Interpolation::kLanczos}) {
    SpectralConfig c = Config(500, 512, false);
    c.interpolation = kind;
    const SpectralTables tables = MakeSpectralTables(c);
    const auto taps = static_cast<size_t>(math::Taps(kind));
    ASSERT_EQ(tables.tap.size(), 500u);
    ASSERT_EQ(tables.weights.size(), 500 * taps);
    for (size_t j = 0; j < 500; ++j) {
      EXPECT_EQ(tables.tap[j], static_cast<int32_t>(c.k_index[j]));
      float sum = 0, wanted[8];
      math::WeightsOf(kind, c.k_index[j] - std::floor(c.k_index[j]), wanted);
      for (size_t t = 0; t < taps; ++t) {
        EXPECT_EQ(tables.weights[j * taps + t], wanted[t]);
        sum += tables.weights[j * taps + t];
      }
      EXPECT_NEAR(sum, 1.0f, 1e-6f);
    }
  }
}

TEST(SpectralTablesTest, PositionsAreThoseOfTheKIndexOrOfTheSamples) {
  SpectralConfig c = Config(500, 512, false);
  std::vector<uint32_t> positions = MakePositions(c);
  for (size_t j = 0; j < 500; ++j) {
    const double r = math::PositionSample(positions[j]) +
                     static_cast<double>(math::PositionFraction(positions[j]));
    EXPECT_NEAR(r, c.k_index[j], std::ldexp(1.0, -21));
  }
  c.interpolation = math::Interpolation::kNone;
  c.k_index.clear();
  positions = MakePositions(c);
  for (uint32_t j = 0; j < 500; ++j) EXPECT_EQ(positions[j], j << math::kPositionFractionBits);
}

TEST(SpectralTablesTest, LevelsMapToTheRangeOfTheType) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-100, 100);
  for (int i = 0; i < 1000; ++i) {
    for (const DType output : {DType::kU8, DType::kI8, DType::kU16, DType::kF16, DType::kF32}) {
      SpectralConfig c;
      c.output = output;
      EXPECT_EQ(MakeLevelScale<float>(c).scale, 1);
      EXPECT_EQ(MakeLevelScale<float>(c).offset, 0);
      c.has_levels = true;
      c.level_lo = draw(random);
      c.level_hi = c.level_lo + 1 + std::abs(draw(random));
      const float bottom = LowestOf(output), top = IsInteger(output) ? HighestOf(output) : 1;
      // Equal to the last bit in both precisions: a volume that is processed again must have the
      // same voxels.
      const auto [scale, offset] = MakeLevelScale<float>(c);
      EXPECT_EQ(scale, (top - bottom) / (c.level_hi - c.level_lo));
      EXPECT_EQ(offset, bottom - c.level_lo * scale);
      const auto [fine_scale, fine_offset] = MakeLevelScale<double>(c);
      EXPECT_EQ(fine_scale, static_cast<double>(top - bottom) / (static_cast<double>(c.level_hi) -
                                                                 static_cast<double>(c.level_lo)));
      EXPECT_NEAR(static_cast<double>(c.level_hi) * fine_scale + fine_offset, top, 1e-9);
      EXPECT_NEAR(static_cast<double>(c.level_lo) * fine_scale + fine_offset, bottom, 1e-9);
    }
  }
}

}  // namespace
}  // namespace octavo
