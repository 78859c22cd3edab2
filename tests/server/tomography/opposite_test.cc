// Two projections half a turn apart, for people who judge an axis.

#include "server/tomography/opposite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/seed.h"

namespace octavo::tomography {
namespace {

constexpr double kDegree = 3.14159265358979323846 / 180;

std::vector<double> Radians(const std::vector<double>& degrees) {
  std::vector<double> angles;
  for (const double degree : degrees) angles.push_back(degree * kDegree);
  return angles;
}

std::vector<double> Even(double first, double step, int count) {
  std::vector<double> degrees;
  for (int i = 0; i < count; ++i) degrees.push_back(first + step * i);
  return Radians(degrees);
}

std::optional<model::OppositeProjections> Of(const std::vector<double>& angles,
                                             model::IndexRange used = {}) {
  if (used.end == 0) used.end = std::ssize(angles);
  used.step = std::max<int64_t>(used.step, 1);
  return OppositeOf(used, angles);
}

void Expect(const std::optional<model::OppositeProjections>& found, int64_t first, int64_t second,
            double degrees) {
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->first, first);
  EXPECT_EQ(found->second, second);
  EXPECT_NEAR(found->degrees, degrees, 1e-6);
}

TEST(OppositeTest, ThoseOfTheFirstProjectionIfOthersAreAsNear) {
  Expect(Of(Even(0, 1, 181)), 0, 180, 180);
  Expect(Of(Even(37, 0.5, 720)), 0, 360, 180);
  Expect(Of(Even(-90.25, -2, 200)), 0, 90, 180);
  Expect(Of(Even(1000, 1, 360), {.begin = 10, .end = 300, .step = 3}), 10, 190, 180);
}

TEST(OppositeTest, TheNearestOnes) {
  Expect(Of(Even(0, 1, 180)), 0, 179, 179);
  Expect(Of(Radians({0, 40, 90, 178, 221, 266})), 1, 4, 181);
  Expect(Of(Radians({350, 100, 171.5})), 0, 2, 181.5);
  EXPECT_FALSE(Of(Even(0, 1, 169)).has_value());
  EXPECT_FALSE(Of(Radians({0, 169.9, 190.2})).has_value());
  EXPECT_FALSE(Of(Radians({30})).has_value());
  EXPECT_FALSE(Of(Radians({30, 30, 30})).has_value());
}

TEST(OppositeTest, AsAComparisonOfAllPairsFinds) {
  std::mt19937 random(octavo::testing::FreshSeed());
  for (int round = 0; round < 50; ++round) {
    std::uniform_real_distribution<double> anywhere(-4000, 4000);
    std::vector<double> degrees(static_cast<size_t>(5 + round));
    for (double& degree : degrees) degree = anywhere(random);
    const std::vector<double> angles = Radians(degrees);
    double least = 10;
    for (const double a : degrees) {
      for (const double b : degrees)
        least = std::min(least, std::abs(std::remainder(b - a - 180, 360)));
    }
    const auto found = Of(angles);
    ASSERT_EQ(found.has_value(), least < 10);
    if (!found.has_value()) continue;
    EXPECT_NEAR(std::abs(found->degrees - 180), least, 0.01);
    EXPECT_NEAR(std::remainder(degrees[static_cast<size_t>(found->second)] -
                                   degrees[static_cast<size_t>(found->first)] - found->degrees,
                               360),
                0, 1e-6);
  }
}

}  // namespace
}  // namespace octavo::tomography
