// The values to show as black and white, of planes whose parts are known.

#include "server/volume_import/display_range.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace octavo::volume_import {
namespace {

template <class T>
std::optional<std::pair<double, double>> Of(const std::vector<T>& plane, DType dtype) {
  return FindDisplayRange(plane.data(), std::ssize(plane), dtype);
}

TEST(DisplayRangeTest, LeavesOutTheEnds) {
  std::vector<uint16_t> plane(1001);
  std::iota(plane.begin(), plane.end(), uint16_t{100});
  const auto range = Of(plane, DType::kU16);
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 102);
  EXPECT_EQ(range->second, 1098);
}

TEST(DisplayRangeTest, LeavesOutWhatIsNotFinite) {
  std::vector<float> plane(1000, std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < plane.size(); i += 2) plane[i] = i < 500 ? -2.5f : 7.5f;
  plane[1] = std::numeric_limits<float>::infinity();
  const auto range = Of(plane, DType::kF32);
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, -2.5);
  EXPECT_EQ(range->second, 7.5);
}

TEST(DisplayRangeTest, OneValueIsARange) {
  const auto range = Of(std::vector<int8_t>(50, -3), DType::kI8);
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, -3);
  EXPECT_EQ(range->second, -2);
}

TEST(DisplayRangeTest, NothingWhereThereIsNone) {
  EXPECT_FALSE(Of(std::vector<double>(9, std::nan("")), DType::kF64).has_value());
  EXPECT_FALSE(Of(std::vector<float>(8, 1.0f), DType::kC64).has_value());
}

TEST(DisplayRangeTest, LooksAtAPartOfALargePlane) {
  std::vector<uint8_t> plane((3 << 20) + 17);
  for (size_t i = 0; i < plane.size(); ++i) plane[i] = static_cast<uint8_t>(i * 251 / plane.size());
  const auto range = Of(plane, DType::kU8);
  ASSERT_TRUE(range.has_value());
  EXPECT_LE(range->first, 1);
  EXPECT_NEAR(range->second, 250, 1);
}

}  // namespace
}  // namespace octavo::volume_import
