#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/tomography/reconstruct.h"
#include "tests/gpu/tomography/phantoms.h"

// Random scans of random ellipses for the comparison of the direct algorithms: any number of
// angles, even or not, any axis, whole or truncated, with noise or without.
namespace octavo::testing {

struct DirectCase {
  TomographyConfig config;      // but for the algorithm
  std::vector<float> sinogram;  // [angle, detector]
  std::vector<double> truth;    // [n, n]; each pixel is the mean of 3 × 3 points
  double radius = 0;            // of the circle where results are compared
  std::string text;
};

/// The ellipses as an image of n × n pixels. y upwards.
inline std::vector<double> DrawEllipses(const std::vector<PhantomEllipse>& ellipses, int64_t n) {
  constexpr int kPoints = 3;
  std::vector<double> image(static_cast<size_t>(n * n), 0.0);
  const double middle = 0.5 * static_cast<double>(n - 1);
  for (const PhantomEllipse& e : ellipses) {
    const double cosine = std::cos(e.phi), sine = std::sin(e.phi), reach = std::max(e.a, e.b) + 1;
    const auto clip = [&](double at) {
      return std::clamp<int64_t>(static_cast<int64_t>(std::floor(at)), 0, n - 1);
    };
    for (int64_t r = clip(middle - e.y - reach); r <= clip(middle - e.y + reach + 1); ++r) {
      for (int64_t c = clip(middle + e.x - reach); c <= clip(middle + e.x + reach + 1); ++c) {
        int inside = 0;
        for (int i = 0; i < kPoints * kPoints; ++i) {
          const double x = static_cast<double>(c) - middle - e.x + (i % kPoints - 1) / 3.0,
                       y = middle - static_cast<double>(r) - e.y + (i / kPoints - 1) / 3.0;
          const double u = (x * cosine + y * sine) / e.a, v = (y * cosine - x * sine) / e.b;
          inside += u * u + v * v <= 1;
        }
        image[static_cast<size_t>(r * n + c)] += e.value * inside / (kPoints * kPoints);
      }
    }
  }
  return image;
}

inline std::vector<PhantomEllipse> RandomEllipses(std::mt19937& random, double radius) {
  const auto uniform = [&](double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random);
  };
  std::vector<PhantomEllipse> out = {{.value = 1,
                                      .a = radius * uniform(0.85, 1),
                                      .b = radius * uniform(0.7, 1),
                                      .x = 0,
                                      .y = 0,
                                      .phi = uniform(0, 3)}};
  for (int i = static_cast<int>(uniform(10, 40)); i > 0; --i) {
    static constexpr double kValues[] = {-0.9, -0.6, 0.6, 1.0, 1.5};
    const double a = radius * std::exp(uniform(std::log(0.03), std::log(0.25))),
                 off = (0.9 * radius - a) * std::sqrt(uniform(0, 1)), to = uniform(0, 6.28);
    out.push_back({.value = kValues[random() % 5],
                   .a = a,
                   .b = a * uniform(0.4, 1),
                   .x = off * std::cos(to),
                   .y = off * std::sin(to),
                   .phi = uniform(0, 3)});
  }
  return out;
}

/// `most_angles`: the numbers of angles are 90 … this, evenly in their logarithm.
inline DirectCase DrawDirectCase(uint32_t seed, int64_t most_angles = 2048) {
  std::mt19937 random(seed);
  const auto uniform = [&](double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random);
  };
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  DirectCase c;
  TomographyConfig& t = c.config;
  const auto n = static_cast<int64_t>(uniform(64, 260));
  const auto angles = static_cast<int64_t>(
      std::exp(uniform(std::log(90), std::log(static_cast<double>(most_angles) + 0.99))));
  const bool turn = one_in(3), uneven = one_in(3), shuffled = one_in(3), off_center = one_in(3),
             truncated = one_in(4), noisy = !one_in(3), closed = one_in(4);
  t.detectors = n;
  t.slices = 1;
  const double middle = 0.5 * static_cast<double>(n - 1), width = static_cast<double>(n),
               center = middle + (off_center ? uniform(-0.1, 0.1) * width : uniform(-0.5, 0.5));
  t.centers = {center};
  const double span = (turn ? 2 : 1) * std::numbers::pi, begin = uniform(-3, 3),
               steps = static_cast<double>(closed ? angles - 1 : angles);
  for (int64_t i = 0; i < angles; ++i) {
    const double at = static_cast<double>(i) + (uneven ? uniform(-0.45, 0.45) : 0);
    t.angles_rad.push_back(begin + span * at / steps);
  }
  if (shuffled) std::shuffle(t.angles_rad.begin(), t.angles_rad.end(), random);
  const double near = std::min(center, static_cast<double>(n - 1) - center),
               radius = truncated ? near * uniform(1.05, 1.4) : near * uniform(0.6, 0.95);
  t.extend_edges = truncated;
  static constexpr ProjectionFilter kFilters[] = {
      ProjectionFilter::kRamp, ProjectionFilter::kSheppLogan, ProjectionFilter::kHann};
  t.filter = kFilters[one_in(2) ? 0 : random() % 3];
  const std::vector<PhantomEllipse> ellipses = RandomEllipses(random, radius);
  std::vector<double> exact = ProjectEllipses(ellipses, t.angles_rad, n, center);
  const double largest = *std::max_element(exact.begin(), exact.end()),
               noise = noisy ? largest * std::exp(uniform(std::log(1e-3), std::log(3e-2))) : 0;
  std::normal_distribution<double> normal(0, 1);
  for (const double value : exact)
    c.sinogram.push_back(static_cast<float>(value + noise * normal(random)));
  c.truth = DrawEllipses(ellipses, n);
  c.radius = truncated ? 0.95 * near : 0.5 * static_cast<double>(n);
  std::ostringstream text;
  text << "seed " << seed << ": " << n << " bins, " << angles << " angles over "
       << (turn ? 360 : 180) << (closed ? " and the end" : "") << (uneven ? ", uneven" : "")
       << (shuffled ? ", shuffled" : "") << ", axis " << center - middle << " off"
       << (truncated ? ", truncated" : "") << ", noise " << noise / largest << ", filter "
       << static_cast<int>(t.filter);
  c.text = text.str();
  return c;
}

/// PSNR in dB against the truth's largest value, within the circle.
template <class A>
double CirclePsnr(const A& image, const std::vector<double>& truth, int64_t n, double radius) {
  double sum = 0, peak = 0;
  int64_t count = 0;
  const double middle = 0.5 * static_cast<double>(n - 1);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      if (std::hypot(static_cast<double>(r) - middle, static_cast<double>(c) - middle) > radius)
        continue;
      const auto i = static_cast<size_t>(r * n + c);
      const double off = static_cast<double>(image[i]) - truth[i];
      sum += off * off;
      peak = std::max(peak, std::abs(truth[i]));
      ++count;
    }
  }
  return 10 * std::log10(peak * peak * static_cast<double>(count) / sum);
}

}  // namespace octavo::testing
