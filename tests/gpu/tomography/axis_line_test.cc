// The axis as a line: against exact least squares, with noise of known size, and with groups that
// miss it.

#include "gpu/tomography/axis_line.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "gtest/gtest.h"

#include "gpu/math/turning.h"
#include "tests/support/seed.h"

namespace octavo {
namespace {

std::vector<AxisPoint> OnLine(double offset, double slope, int count, double rows) {
  std::vector<AxisPoint> points;
  for (int i = 0; i < count; ++i) {
    const double row = (i + 0.5) * rows / count;
    points.push_back({.row = row, .center = offset + slope * row, .uncertainty = 0.1});
  }
  return points;
}

TEST(AxisLineTest, PointsOnALineGiveIt) {
  for (const int count : {3, 4, 9}) {
    for (const double slope : {0.0, 0.0035, -0.0175, 0.0875}) {
      const auto line = FitAxisLine(OnLine(311.25, slope, count, 400));
      ASSERT_TRUE(line.has_value());
      EXPECT_NEAR(line->slope, slope, 1e-10);
      EXPECT_NEAR(line->offset, 311.25, 1e-7);
      EXPECT_NEAR(line->mean_row, 200, 1e-9);
      EXPECT_NEAR(line->At(100), 311.25 + 100 * slope, 1e-7);
      EXPECT_NEAR(line->residual_rms, 0, 1e-8);
      EXPECT_EQ(line->points_used, count);
      EXPECT_EQ(line->Leans(400), slope != 0);
    }
  }
}

// With normal noise of the stated size the estimates scatter as their uncertainties say.
TEST(AxisLineTest, UncertaintiesAreThoseOfTheScatter) {
  std::mt19937 random(testing::FreshSeed());
  std::normal_distribution<double> normal;
  const int rounds = 3000;
  double slope_squares = 0, offset_squares = 0, mean_squares = 0;
  int leaning = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<AxisPoint> points = OnLine(50, 0, 9, 300);
    for (size_t i = 0; i < points.size(); ++i) {
      points[i].uncertainty = i % 2 == 0 ? 0.1 : 0.3;
      points[i].center += points[i].uncertainty * normal(random);
    }
    const auto line = FitAxisLine(points);
    ASSERT_TRUE(line.has_value());
    slope_squares += std::pow(line->slope / line->slope_uncertainty, 2);
    offset_squares += std::pow((line->offset - 50) / line->offset_uncertainty, 2);
    mean_squares += std::pow((line->At(line->mean_row) - 50) / line->mean_uncertainty, 2);
    leaning += line->Leans(300);
  }
  for (const double squares : {slope_squares, offset_squares, mean_squares})
    EXPECT_NEAR(std::sqrt(squares / rounds), 1, 0.25);
  EXPECT_LT(leaning, rounds / 7) << "an upright axis rarely seems to lean";
}

// A line on the detector and the same one seen in turned projections, by the places of single
// points.
TEST(AxisLineTest, TurnedBackIsTheLineOnTheDetector) {
  std::mt19937 random(testing::FreshSeed());
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int round = 0; round < 100; ++round) {
    const double middle_row = 300 + 200 * uniform(random),
                 middle_column = 500 + 300 * uniform(random), degrees = 2 * uniform(random),
                 angle = degrees * 3.14159265358979323846 / 180;
    std::vector<AxisPoint> points =
        OnLine(middle_column + 40 * uniform(random), 0.02 * uniform(random), 9, 600);
    const auto found = FitAxisLine(points);
    ASSERT_TRUE(found.has_value());
    const AxisLine line = TurnedBack(*found, degrees, middle_row, middle_column);
    const math::DetectorTurn turn{.sin = std::sin(angle),
                                  .cos = std::cos(angle),
                                  .middle_row = middle_row,
                                  .middle_column = middle_column};
    const int64_t column =
        std::lround(found->At(100));  // a pixel, and the column of the line in its row
    const double beside = found->At(100) - static_cast<double>(column);
    const math::DetectorPlace place = math::PlaceBefore(turn, 100, column);
    EXPECT_NEAR(line.At(place.row - beside * turn.sin), place.column + beside * turn.cos, 1e-6);
    EXPECT_NEAR(std::atan(line.slope), std::atan(found->slope) + angle, 1e-12);
    // Sizes of uncertainties hardly change; the column is known best where it was.
    EXPECT_NEAR(line.slope_uncertainty / found->slope_uncertainty, 1, 0.01);
    EXPECT_EQ(line.mean_uncertainty, found->mean_uncertainty);
    EXPECT_NEAR(line.mean_row,
                math::PlaceBefore(turn, std::round(found->mean_row),
                                  std::lround(found->At(found->mean_row)))
                    .row,
                1);
    EXPECT_EQ(line.used, found->used);
  }
}

// With equal weights and no outlier the line is that of ordinary least squares.
TEST(AxisLineTest, WithoutOutliersItIsLeastSquares) {
  std::mt19937 random(testing::FreshSeed());
  std::normal_distribution<double> normal;
  for (int round = 0; round < 100; ++round) {
    std::vector<AxisPoint> points = OnLine(20, 0.01, 7, 100);
    for (AxisPoint& p : points) p.center += 0.1 * normal(random);
    const auto line = FitAxisLine(points);
    ASSERT_TRUE(line.has_value());
    if (line->points_used != 7) continue;
    double rows = 0, centers = 0, square = 0, moment = 0;
    for (const AxisPoint& p : points) rows += p.row / 7, centers += p.center / 7;
    for (const AxisPoint& p : points) {
      square += (p.row - rows) * (p.row - rows);
      moment += (p.row - rows) * (p.center - centers);
    }
    EXPECT_NEAR(line->slope, moment / square, 1e-10);
    EXPECT_NEAR(line->offset, centers - moment / square * rows, 1e-8);
  }
}

TEST(AxisLineTest, GroupsThatMissItAreLeftOut) {
  std::mt19937 random(testing::FreshSeed());
  std::normal_distribution<double> normal;
  for (int round = 0; round < 200; ++round) {
    const double slope = 0.02 * normal(random);
    std::vector<AxisPoint> points = OnLine(100, slope, 9, 500);
    for (AxisPoint& p : points) p.center += 0.05 * normal(random);
    std::vector<bool> bad(9, false);
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % 9;
      if (bad[at]) continue;
      bad[at] = true;
      points[at].center += (random() % 2 == 0 ? 1 : -1) * (20 + std::abs(normal(random)) * 50);
    }
    points[4].determined = false;
    points[4].center = 1e9;
    const auto line = FitAxisLine(points);
    ASSERT_TRUE(line.has_value());
    ASSERT_EQ(line->used.size(), 9u);
    EXPECT_NEAR(line->slope, slope, 3e-3);
    EXPECT_NEAR(line->At(250), 100 + 250 * slope, 0.5);
    EXPECT_LT(line->residual_rms, 0.3);
    for (size_t i = 0; i < 9; ++i) {
      if (bad[i] || i == 4) EXPECT_FALSE(line->used[i]) << i;
    }
  }
}

TEST(AxisLineTest, ScatterBeyondTheUncertaintiesMakesThemLarger) {
  std::vector<AxisPoint> points = OnLine(100, 0, 8, 80);
  for (size_t i = 0; i < points.size(); ++i) points[i].center += i % 2 == 0 ? 3 : -3;
  const auto line = FitAxisLine(points);
  ASSERT_TRUE(line.has_value());
  EXPECT_GT(line->residual_rms, 2);
  EXPECT_GT(line->mean_uncertainty, 0.8);
  EXPECT_FALSE(line->Leans(80));
}

TEST(AxisLineTest, TooLittleGivesNoLine) {
  EXPECT_FALSE(FitAxisLine({}).has_value());
  EXPECT_FALSE(FitAxisLine(OnLine(1, 0, 2, 10)).has_value());
  std::vector<AxisPoint> points = OnLine(1, 0, 5, 10);
  for (AxisPoint& p : points) p.row = 4;
  EXPECT_FALSE(FitAxisLine(points).has_value()) << "one row only";
  points = OnLine(1, 0, 5, 10);
  for (size_t i = 0; i < 3; ++i) points[i].determined = false;
  EXPECT_FALSE(FitAxisLine(points).has_value());
}

TEST(AxisLineTest, ASmallShiftIsNoLeaning) {
  const auto line = FitAxisLine(OnLine(100, 0.0009, 9, 101));
  ASSERT_TRUE(line.has_value());
  EXPECT_FALSE(line->Leans(101)) << "0.09 columns";
  EXPECT_FALSE(line->Leans(112));
}

}  // namespace
}  // namespace octavo
