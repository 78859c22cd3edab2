#include "gpu/spectral/k_calibration.h"

#include <cmath>
#include <numbers>
#include <random>

#include "gpu/spectral/spectral_design.h"
#include "tests/support/status_matchers.h"

namespace octavo {
namespace {

using std::numbers::pi;
using testing::IsError;
using testing::IsOk;

// A nonlinear k of the sample at u = j/S, 0 ... 1, and its inverse r.
double Bent(double u) { return u + 0.25 * u * (1 - u) * (1 + 0.3 * u); }
double Inverse(double k) {
  double lo = 0, hi = 1;
  for (int i = 0; i < 60; ++i) (Bent(0.5 * (lo + hi)) < k ? lo : hi) = 0.5 * (lo + hi);
  return 0.5 * (lo + hi);
}

std::vector<double> Fringe(int64_t samples, double turns, double noise) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  std::vector<double> spectrum(static_cast<size_t>(samples));
  for (int64_t j = 0; j < samples; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(samples - 1);
    const double envelope = 0.15 + 0.85 * std::exp(-10 * (u - 0.5) * (u - 0.5));
    spectrum[static_cast<size_t>(j)] =
        1000 * envelope * (1 + 0.4 * std::cos(2 * pi * turns * Bent(u) + 0.7)) +
        noise * normal(random);
  }
  return spectrum;
}

TEST(KCalibration, InvertsTheBentAxis) {
  for (const auto& [samples, turns] :
       {std::pair<int64_t, double>{1024, 190.3}, {1000, 88.8}, {1536, 250.0}, {997, 120.5}}) {
    ASSERT_OK_AND_ASSIGN(const KCalibration found, CalibrateK(Fringe(samples, turns, 2), {}));
    const double top = static_cast<double>(samples - 1);
    double error = 0, bend = 0;
    for (int64_t j = 0; j < samples; ++j) {
      const double truth = top * Inverse(static_cast<double>(j) / top);
      error = std::max(error, std::abs(found.index[static_cast<size_t>(j)] - truth));
      bend = std::max(bend, std::abs(truth - static_cast<double>(j)));
      if (j > 0)
        ASSERT_GT(found.index[static_cast<size_t>(j)], found.index[static_cast<size_t>(j - 1)]);
    }
    EXPECT_LT(error, 0.02 * bend) << samples << ", bend " << bend;
    EXPECT_NEAR(found.peak_bin, turns * static_cast<double>(samples) / top, 0.2);
    EXPECT_LT(found.residual_rms_rad, 0.05);
    EXPECT_EQ(found.index.front(), 0);
    EXPECT_EQ(found.index.back(), top);
    EXPECT_THAT(KIndexFromPolynomial(found.polynomial, samples), IsOk());
  }
}

TEST(KCalibration, SaysWhatIsWrong) {
  std::vector<double> noise(512);
  std::mt19937_64 random(1);
  for (double& v : noise) v = std::normal_distribution<double>()(random);
  EXPECT_THAT(CalibrateK(noise, {}),
              IsError(absl::StatusCode::kFailedPrecondition, "no reflector"));
  EXPECT_THAT(CalibrateK(std::vector<double>(8), {}),
              IsError(absl::StatusCode::kInvalidArgument, "samples"));
  EXPECT_THAT(CalibrateK(Fringe(512, 60, 0), {.least_bin = 255}),
              IsError(absl::StatusCode::kInvalidArgument, "least_bin"));
  EXPECT_THAT(CalibrateK(Fringe(512, 60, 0), {.polynomial_degree = 0}),
              IsError(absl::StatusCode::kInvalidArgument, "polynomial_degree"));
  EXPECT_THAT(CalibrateK(Fringe(512, 60, 0), {.edge = 0.4}),
              IsError(absl::StatusCode::kInvalidArgument, "edge"));
}

TEST(KCalibration, PolynomialsKeepTheEnds) {
  std::vector<double> index(300);
  for (size_t j = 0; j < index.size(); ++j) index[j] = 299 * Inverse(static_cast<double>(j) / 299);
  const std::vector<double> c = FitIndexPolynomial(index, 7);
  ASSERT_EQ(c.size(), 8u);
  double worst = 0, end = 0;
  for (size_t j = 0; j < index.size(); ++j) {
    double r = 0;
    for (size_t i = c.size(); i-- > 0;) r = r * static_cast<double>(j) + c[i];
    worst = std::max(worst, std::abs(r - index[j]));
    end = r;
  }
  EXPECT_LT(worst, 0.01);
  EXPECT_NEAR(end, 299, 1e-9);
  EXPECT_EQ(c[0], 0);
}

}  // namespace
}  // namespace octavo
