#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <string>
#include <vector>

// Scans of random phantoms about a known axis, for tests of axis searches. The projections are
// exact line integrals of ellipses.
namespace octavo::testing {

struct PhantomEllipse {
  double value, a, b, x, y, phi;  // phi: radians
};

/// The mean of three rays through each bin of width 1. [angle, detector]
inline std::vector<double> ProjectEllipses(const std::vector<PhantomEllipse>& ellipses,
                                           const std::vector<double>& angles, int64_t detectors,
                                           double center) {
  std::vector<double> out(angles.size() * static_cast<size_t>(detectors), 0.0);
  for (size_t i = 0; i < angles.size(); ++i) {
    double* const row = out.data() + i * static_cast<size_t>(detectors);
    for (const PhantomEllipse& e : ellipses) {
      const double p = e.a * std::cos(angles[i] - e.phi), q = e.b * std::sin(angles[i] - e.phi),
                   r2 = p * p + q * q;
      const double middle = center + e.x * std::cos(angles[i]) + e.y * std::sin(angles[i]),
                   reach = std::sqrt(r2);
      const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(middle - reach)) - 1);
      const auto last =
          std::min<int64_t>(detectors - 1, static_cast<int64_t>(std::ceil(middle + reach)) + 1);
      for (int64_t d = first; d <= last; ++d) {
        double sum = 0;
        for (const double off : {-1.0 / 3, 0.0, 1.0 / 3}) {
          const double s = static_cast<double>(d) + off - middle;
          if (s * s < r2) sum += std::sqrt(r2 - s * s);
        }
        row[d] += e.value * 2 * e.a * e.b / r2 * sum / 3;
      }
    }
  }
  return out;
}

enum class PhantomScan { kHalfTurn, kHalfTurnAndEnd, kTurn };
/// kWhole: the detector always sees the whole object. kOneSided: the object is wider than the
/// distance from the axis to the nearer end of the detector. kWide: it is wider than the detector.
enum class PhantomWidth { kWhole, kOneSided, kWide };

struct PhantomCase {
  PhantomScan scan = PhantomScan::kHalfTurn;
  PhantomWidth width = PhantomWidth::kWhole;
  bool shuffled = false, noisy = false;
  int64_t detectors = 240, slices = 1;
  double center = 0;
  std::vector<double> angles_rad;
  std::vector<float> sinograms;  // [slice, angle, detector]

  std::string Text() const {
    static constexpr const char* kScans[] = {"180", "180 and its end", "360"};
    static constexpr const char* kWidths[] = {"whole", "one-sided", "wide"};
    return std::string(kScans[static_cast<int>(scan)]) + (shuffled ? ", shuffled, " : ", ") +
           kWidths[static_cast<int>(width)] + (noisy ? ", 1000 counts, " : ", no noise, ") +
           std::to_string(angles_rad.size()) + " angles, " + std::to_string(slices) +
           " slices, axis " + std::to_string(center);
  }
};

struct PhantomKind {
  PhantomScan scan;
  PhantomWidth width;
  bool shuffled, noisy;
  int64_t slices;
};
inline PhantomKind DrawKind(std::mt19937& random) {
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  PhantomKind kind{};
  kind.scan = static_cast<PhantomScan>(one_of(3));
  kind.width = static_cast<PhantomWidth>(one_of(3));
  kind.shuffled = one_of(2) == 1;
  kind.noisy = one_of(5) != 0;
  kind.slices = 1;
  return kind;
}

/// Draws a phantom. The axis lies from 20 columns left to 60 right of the middle of 240, or
/// `axis_off` columns from it, unless that is 0. Every slice has an outline that contains 15 … 50
/// ellipses; the strongest absorption is 0.8 … 2.5; the noise is that of 1,000 counts.
inline PhantomCase DrawPhantom(const PhantomKind& kind, uint32_t seed, double axis_off = 0) {
  std::mt19937 random(seed);
  const auto uniform = [&](double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random);
  };
  PhantomCase c;
  c.scan = kind.scan;
  c.width = kind.width;
  c.shuffled = kind.shuffled;
  c.noisy = kind.noisy;
  c.slices = kind.slices;
  const double drawn = uniform(-20, 60);
  c.center = 0.5 * static_cast<double>(c.detectors - 1) + (axis_off == 0 ? drawn : axis_off);
  const bool turn = c.scan == PhantomScan::kTurn;
  const auto angles = static_cast<int64_t>(uniform(180, 400) * (turn ? 1.5 : 1));
  const double begin = uniform(-3, 3), span = turn ? 2 * std::numbers::pi : std::numbers::pi;
  const auto steps =
      static_cast<double>(c.scan == PhantomScan::kHalfTurnAndEnd ? angles - 1 : angles);
  for (int64_t i = 0; i < angles; ++i)
    c.angles_rad.push_back(begin + span * static_cast<double>(i) / steps);
  if (c.shuffled) std::shuffle(c.angles_rad.begin(), c.angles_rad.end(), random);
  const double left = c.center, right = static_cast<double>(c.detectors - 1) - c.center,
               near = std::min(left, right), far = std::max(left, right);
  const double radius = c.width == PhantomWidth::kWhole      ? near * uniform(0.6, 0.95)
                        : c.width == PhantomWidth::kOneSided ? uniform(near, far)
                                                             : far * uniform(1.05, 1.35);
  const double outline = uniform(0.9, 1), other = uniform(0.75, 1),
               phi = uniform(0, std::numbers::pi), strongest = uniform(0.8, 2.5);
  for (int64_t slice = 0; slice < c.slices; ++slice) {
    std::vector<PhantomEllipse> ellipses = {
        {.value = 1, .a = radius * outline, .b = radius * other, .x = 0, .y = 0, .phi = phi}};
    for (int left_over = static_cast<int>(uniform(15, 50)); left_over > 0; --left_over) {
      static constexpr double kValues[] = {-0.9, -0.6, 0.6, 1.0, 1.5};
      const double a = radius * std::exp(uniform(std::log(0.03), std::log(0.25)));
      const double off = (0.95 * radius - a) * std::sqrt(uniform(0, 1)),
                   to = uniform(0, 2 * std::numbers::pi);
      ellipses.push_back({.value = kValues[random() % 5],
                          .a = a,
                          .b = a * uniform(0.4, 1),
                          .x = off * std::cos(to),
                          .y = off * std::sin(to),
                          .phi = uniform(0, std::numbers::pi)});
    }
    std::vector<double> exact = ProjectEllipses(ellipses, c.angles_rad, c.detectors, c.center);
    const double largest = *std::max_element(exact.begin(), exact.end());
    for (double& value : exact) {
      value = std::max(0.0, value) * strongest / largest;
      if (c.noisy)
        value = -std::log(
            std::max(1, std::poisson_distribution<int>(1000 * std::exp(-value))(random)) / 1000.0);
      c.sinograms.push_back(static_cast<float>(value));
    }
  }
  return c;
}

}  // namespace octavo::testing
