// Per-element functions that all backends share, against their definitions.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/device/dtype.h"
#include "gpu/math/half.h"
#include "gpu/math/raw.h"
#include "gpu/math/spectral.h"

namespace octavo::inline gpu::math {
namespace {

// Value of a half-precision number by its definition.
double HalfByDefinition(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(HalfTest, EveryHalfThereAndBack) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float value = HalfToFloat(half);
    if ((h & 0x7C00) != 0x7C00) {
      EXPECT_EQ(static_cast<double>(value), HalfByDefinition(half));
      EXPECT_EQ(FloatToHalf(value), half);
    } else if ((h & 0x3FF) == 0) {
      EXPECT_TRUE(std::isinf(value));
      EXPECT_EQ(FloatToHalf(value), half);
    } else {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    }
  }
}

TEST(HalfTest, RoundsToNearestAndTiesToEven) {
  for (uint32_t h = 0; h < 0x7BFF; ++h) {
    const double below = HalfByDefinition(static_cast<uint16_t>(h)),
                 above = HalfByDefinition(static_cast<uint16_t>(h + 1));
    const auto middle =
        static_cast<float>((below + above) / 2);  // exact: it needs one bit more than a half has
    EXPECT_EQ(FloatToHalf(middle), h % 2 == 0 ? h : h + 1);
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), h);
    EXPECT_EQ(FloatToHalf(-std::nextafter(middle, 1e9f)), (h + 1) | 0x8000);
  }
  EXPECT_EQ(FloatToHalf(65519.99f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(1e30f), 0x7C00);
  EXPECT_EQ(FloatToHalf(1e-30f), 0);
}

TEST(QuantiseTest, RoundsHalfAwayFromZeroClipsAndTakesNanAsLowest) {
  EXPECT_EQ(Quantise(0.49f, 255), 0u);
  EXPECT_EQ(Quantise(2.5f, 255), 3u);
  EXPECT_EQ(Quantise(300, 255), 255u);
  EXPECT_EQ(Quantise(-3, 255), 0u);
  EXPECT_EQ(Quantise(NAN, 255), 0u);
  EXPECT_EQ(QuantiseSigned(2.5f, -128, 127), 3);
  EXPECT_EQ(QuantiseSigned(-2.5f, -128, 127), -3);
  EXPECT_EQ(QuantiseSigned(-2.49f, -128, 127), -2);
  EXPECT_EQ(QuantiseSigned(126.5f, -128, 127), 127);
  EXPECT_EQ(QuantiseSigned(1000, -128, 127), 127);
  EXPECT_EQ(QuantiseSigned(-127.5f, -128, 127), -128);
  EXPECT_EQ(QuantiseSigned(-1000, -128, 127), -128);
  EXPECT_EQ(QuantiseSigned(NAN, -128, 127), -128);
}

TEST(PackingTest, TwoSamplesInThreeBytes) {
  // The test packs only 0x123, 0x456 and 0x789.
  const uint8_t low_first[] = {0x23, 0x61, 0x45, 0x89, 0x07},
                high_first[] = {0x12, 0x63, 0x45, 0x78, 0x09};
  for (const auto& [packing, record] :
       {std::pair{Packing::kLowFirst12, low_first}, std::pair{Packing::kHighFirst12, high_first}}) {
    EXPECT_EQ(ReadPacked12(packing, record, 0), 0x123u);
    EXPECT_EQ(ReadPacked12(packing, record, 1), 0x456u);
    EXPECT_EQ(ReadPacked12(packing, record, 2), 0x789u);
    uint8_t written[5] = {};
    for (int64_t i = 0; i < 3; ++i)
      WritePacked12(packing, written, i, ReadPacked12(packing, record, i));
    EXPECT_EQ(std::memcmp(written, record, 5), 0);
    EXPECT_EQ(PackedBytes(packing, 3, 2), 5);
    EXPECT_EQ(PackedBytes(packing, 1024, 2), 1536);
  }
  EXPECT_EQ(PackedBytes(Packing::kNone, 3, 2), 6);
}

TEST(LanczosTest, KeepsConstantsAndSamples) {
  float w[8];
  LanczosWeights(0, w);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(w[i], i == 3 ? 1 : 0, 1e-7) << i;
  for (const double t : {0.1, 0.25, 0.5, 0.9}) {
    LanczosWeights(t, w);
    double sum = 0;
    for (const float v : w) sum += static_cast<double>(v);
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(DTypeTest, FillPatternsAreTheLowestIntegerOrNan) {
  const auto as = [](DType dtype, auto value) {
    const uint32_t pattern = FillPattern(dtype);
    std::memcpy(&value, &pattern, std::min(sizeof value, sizeof pattern));
    return value;
  };
  EXPECT_EQ(as(DType::kU8, uint8_t{1}), 0);
  EXPECT_EQ(as(DType::kI8, int8_t{1}), -128);
  EXPECT_EQ(as(DType::kU16, uint16_t{1}), 0);
  EXPECT_TRUE(std::isnan(HalfToFloat(as(DType::kF16, uint16_t{1}))));
  EXPECT_TRUE(std::isnan(as(DType::kF32, 1.0f)));
  EXPECT_TRUE(std::isnan(as(DType::kC64, 1.0f)));
}

}  // namespace
}  // namespace octavo::inline gpu::math
