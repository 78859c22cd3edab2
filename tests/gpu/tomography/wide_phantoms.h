#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_plan.h"
#include "gpu/tomography/truncation.h"
#include "tests/gpu/tomography/phantoms.h"

// Random objects that the detector sees in part, and the expected reconstruction of that part.
namespace octavo::testing {

struct WideErrors {
  double rms = 0;  // within 0.9 of the field of view's radius
  double rim = 0;  // mean over the outermost twentieth
};

struct WidePhantom {
  double width = 1;  // object over field of view
  int64_t detectors = 128;
  bool turn = false;
  int counts = 0;  // 0 = no noise
  double center = 0, reach = 0, offset = 0, value = 0;
  std::vector<double> angles_rad;
  std::vector<float> sinogram, truth;  // [angle, detector], [row, column]

  std::string Text() const {
    return std::string(turn ? "360" : "180") + ", " + std::to_string(width) + " wide, " +
           std::to_string(counts) + " counts, " + std::to_string(angles_rad.size()) +
           " angles, axis " + std::to_string(center) + ", offset " + std::to_string(offset);
  }
  TomographyConfig Config(TomographyAlgorithm algorithm) const {
    TomographyConfig c;
    c.algorithm = algorithm;
    c.angles_rad = angles_rad;
    c.detectors = detectors;
    c.slices = 1;
    c.centers = {center};
    c.negative_data_to_zero = algorithm == TomographyAlgorithm::kMlem;
    return c;
  }
  WideErrors ErrorsOf(const std::vector<float>& image) const {
    double squares = 0, inside = 0, rim = 0, outer = 0;
    const double middle = 0.5 * static_cast<double>(detectors - 1);
    for (size_t i = 0; i < image.size(); ++i) {
      const double r = std::hypot(static_cast<double>(i % static_cast<size_t>(detectors)) - middle,
                                  static_cast<double>(i / static_cast<size_t>(detectors)) - middle);
      const double off = static_cast<double>(image[i] - truth[i]) / value,
                   most = std::min(reach, middle);
      if (r <= 0.9 * most) squares += off * off, ++inside;
      if (r > 0.95 * most && r <= most - 0.5) rim += off, ++outer;
    }
    return {.rms = std::sqrt(squares / inside), .rim = rim / outer};
  }
};

/// Draws an outline `width` times as wide as the field of view, with 10 … 25 ellipses in it, about
/// an axis up to 8 (over a full turn 25) columns off the middle of 128. A third have no noise, the
/// others the noise of 1,000 or 10,000 counts. If `width` is below 1, the air may be off by up to
/// 0.1.
inline WidePhantom DrawWide(uint32_t seed, double width) {
  std::mt19937 random(seed);
  const auto uniform = [&](double lo, double hi) {
    return std::uniform_real_distribution<double>(lo, hi)(random);
  };
  WidePhantom p;
  p.width = width;
  p.turn = random() % 2 == 0;
  p.counts = std::vector<int>{0, 1000, 10000}[random() % 3];
  p.center =
      0.5 * static_cast<double>(p.detectors - 1) + (p.turn ? uniform(-25, 25) : uniform(-8, 8));
  const double left = p.center, right = static_cast<double>(p.detectors - 1) - p.center;
  p.reach = p.turn ? std::max(left, right) : std::min(left, right);
  const auto angles = static_cast<int64_t>(uniform(120, 240) * (p.turn ? 1.5 : 1));
  const double begin = uniform(-3, 3), span = (p.turn ? 2 : 1) * std::numbers::pi;
  for (int64_t i = 0; i < angles; ++i)
    p.angles_rad.push_back(begin + span * static_cast<double>(i) / static_cast<double>(angles));
  if (random() % 2 == 0) std::shuffle(p.angles_rad.begin(), p.angles_rad.end(), random);
  const double radius = p.reach * width, strongest = uniform(0.8, 2.5);
  std::vector<PhantomEllipse> ellipses = {{.value = 1,
                                           .a = radius,
                                           .b = radius * uniform(0.75, 1),
                                           .x = 0,
                                           .y = 0,
                                           .phi = uniform(0, std::numbers::pi)}};
  for (int left_over = static_cast<int>(uniform(10, 25)); left_over > 0; --left_over) {
    static constexpr double kValues[] = {-0.6, -0.3, 0.3, 0.6};
    const double a = radius * std::exp(uniform(std::log(0.03), std::log(0.2)));
    const double off = (0.7 * radius - a) * std::sqrt(uniform(0, 1)),
                 to = uniform(0, 2 * std::numbers::pi);
    ellipses.push_back({.value = kValues[random() % 4],
                        .a = a,
                        .b = a * uniform(0.4, 1),
                        .x = off * std::cos(to),
                        .y = off * std::sin(to),
                        .phi = uniform(0, std::numbers::pi)});
  }
  const std::vector<double> exact = ProjectEllipses(ellipses, p.angles_rad, p.detectors, p.center);
  p.value = strongest / *std::max_element(exact.begin(), exact.end());
  if (width < 1 && random() % 2 == 0) p.offset = uniform(-0.1, 0.1);
  for (const double of : exact) {
    double value = std::max(0.0, of) * p.value;
    if (p.counts > 0)
      value = -std::log(
          std::max(1, std::poisson_distribution<int>(p.counts * std::exp(-value))(random)) /
          static_cast<double>(p.counts));
    p.sinogram.push_back(static_cast<float>(value + p.offset));
  }
  // A pixel is the mean of four by four points.
  const double middle = 0.5 * static_cast<double>(p.detectors - 1);
  for (int64_t i = 0; i < p.detectors * p.detectors; ++i) {
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      const double x = static_cast<double>(i % p.detectors) - middle + (k % 4 - 1.5) / 4,
                   y = middle - static_cast<double>(i / p.detectors) + (k / 4 - 1.5) / 4;
      for (const PhantomEllipse& e : ellipses) {
        const double u = ((x - e.x) * std::cos(e.phi) + (y - e.y) * std::sin(e.phi)) / e.a,
                     v = (-(x - e.x) * std::sin(e.phi) + (y - e.y) * std::cos(e.phi)) / e.b;
        if (u * u + v * v <= 1) sum += e.value / 16;
      }
    }
    p.truth.push_back(static_cast<float>(sum * p.value));
  }
  return p;
}

inline Truncation TruncationOf(const WidePhantom& p) {
  const BoundingEnds ends = EndsThatBound(p.angles_rad, p.detectors, p.center);
  return FindTruncation({.angles_rad = p.angles_rad,
                         .slices = 1,
                         .detectors = p.detectors,
                         .centers = {p.center},
                         .left = ends.left,
                         .right = ends.right},
                        p.sinogram);
}

}  // namespace octavo::testing
