#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "gpu/tomography/reconstruct.h"

// Double-precision reference for tomography: phantoms, their exact projections, and the projector
// as a dense matrix.
namespace octavo::testing {

using Doubles = std::vector<double>;

inline std::vector<double> HalfTurn(int64_t angles) {
  std::vector<double> out;
  for (int64_t i = 0; i < angles; ++i)
    out.push_back(std::numbers::pi * static_cast<double>(i) / static_cast<double>(angles));
  return out;
}

/// The modified Shepp-Logan phantom (Toft 1996), [n, n], row 0 on top; the ends of the unit square
/// are the middles of the outer pixels.
struct Ellipse {
  double value, a, b, x, y, degrees;
};
inline const std::vector<Ellipse>& SheppLogan() {
  static const auto& ellipses =
      *new std::vector<Ellipse>{{1, .69, .92, 0, 0, 0},        {-.8, .6624, .874, 0, -.0184, 0},
                                {-.2, .11, .31, .22, 0, -18},  {-.2, .16, .41, -.22, 0, 18},
                                {.1, .21, .25, 0, .35, 0},     {.1, .046, .046, 0, .1, 0},
                                {.1, .046, .046, 0, -.1, 0},   {.1, .046, .023, -.08, -.605, 0},
                                {.1, .023, .023, 0, -.606, 0}, {.1, .023, .046, .06, -.605, 0}};
  return ellipses;
}
inline Doubles Phantom(int64_t n) {
  Doubles image(static_cast<size_t>(n * n), 0.0);
  for (const Ellipse& e : SheppLogan()) {
    const double cosine = std::cos(e.degrees * std::numbers::pi / 180),
                 sine = std::sin(e.degrees * std::numbers::pi / 180);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const double x = 2.0 * static_cast<double>(c) / static_cast<double>(n - 1) - 1 - e.x,
                     y = 1 - 2.0 * static_cast<double>(r) / static_cast<double>(n - 1) - e.y;
        const double u = (x * cosine + y * sine) / e.a, v = (-x * sine + y * cosine) / e.b;
        if (u * u + v * v <= 1) image[static_cast<size_t>(r * n + c)] += e.value;
      }
    }
  }
  return image;
}

/// Line integrals of a pixel image [n, n] (pixels are squares), exact: Siddon 1985. [angle,
/// detector], pixel size 1.
inline Doubles ExactProjections(const Doubles& image, int64_t n, const std::vector<double>& angles,
                                int64_t detectors, double center) {
  Doubles out;
  const double half = static_cast<double>(n) / 2;
  for (const double angle : angles) {
    const double cosine = std::cos(angle), sine = std::sin(angle);
    for (int64_t d = 0; d < detectors; ++d) {
      const double s = static_cast<double>(d) - center + 1e-9;  // off the common edges of pixels
      std::vector<double> cuts;  // along the ray: x = s cos − t sin, y = s sin + t cos
      for (int64_t i = 0; i <= n; ++i) {
        const double edge = static_cast<double>(i) - half;
        if (std::abs(sine) > 1e-12) cuts.push_back((s * cosine - edge) / sine);
        if (std::abs(cosine) > 1e-12) cuts.push_back((edge - s * sine) / cosine);
      }
      std::sort(cuts.begin(), cuts.end());
      double sum = 0;
      for (size_t i = 1; i < cuts.size(); ++i) {
        const double t = (cuts[i - 1] + cuts[i]) / 2, x = s * cosine - t * sine,
                     y = s * sine + t * cosine;
        const auto c = static_cast<int64_t>(std::floor(x + half)),
                   r = static_cast<int64_t>(std::floor(half - y));
        if (c >= 0 && c < n && r >= 0 && r < n)
          sum += (cuts[i] - cuts[i - 1]) * image[static_cast<size_t>(r * n + c)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

/// A[θ, d; pixel] = p/w · h((u − d)/w), as gpu/math/rotation.h defines it, computed from the
/// formula without its tables.
struct DenseProjector {
  int64_t n, detectors;
  std::vector<double> angles;
  double center, pixel_size, radius;  // radius 0 = no circle
  math::RayInterpolation how;

  double Weight(double t) const {
    const double a = std::abs(t);
    switch (how) {
      case math::RayInterpolation::kNearest: return a < 0.5 ? 1 : 0;
      case math::RayInterpolation::kLinear: return std::max(0.0, 1 - a);
      case math::RayInterpolation::kCubic:
        return a < 1   ? 1.5 * a * a * a - 2.5 * a * a + 1
               : a < 2 ? -0.5 * a * a * a + 2.5 * a * a - 4 * a + 2
                       : 0;
    }
    return 0;
  }
  template <class F>
  void Each(F f) const {  // f(ray, pixel, weight)
    const double middle = static_cast<double>(n - 1) / 2;
    for (size_t a = 0; a < angles.size(); ++a) {
      const double cosine = std::cos(angles[a]), sine = std::sin(angles[a]),
                   w = std::max(std::abs(cosine), std::abs(sine));
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t c = 0; c < n; ++c) {
          const double x = static_cast<double>(c) - middle, y = middle - static_cast<double>(r);
          if (radius > 0 && x * x + y * y > radius * radius) continue;
          const double u = center + x * cosine + y * sine;
          for (auto d = static_cast<int64_t>(std::floor(u)) - 2;
               d <= static_cast<int64_t>(std::floor(u)) + 3; ++d) {
            if (d < 0 || d >= detectors) continue;
            const double weight = pixel_size / w * Weight((u - static_cast<double>(d)) / w);
            if (weight != 0) f(static_cast<int64_t>(a) * detectors + d, r * n + c, weight);
          }
        }
      }
    }
  }
  Doubles Forward(const Doubles& image) const {
    Doubles out(angles.size() * static_cast<size_t>(detectors), 0.0);
    Each([&](int64_t ray, int64_t pixel, double w) {
      out[static_cast<size_t>(ray)] += w * image[static_cast<size_t>(pixel)];
    });
    return out;
  }
  Doubles Back(const Doubles& sinogram) const {
    Doubles out(static_cast<size_t>(n * n), 0.0);
    Each([&](int64_t ray, int64_t pixel, double w) {
      out[static_cast<size_t>(pixel)] += w * sinogram[static_cast<size_t>(ray)];
    });
    return out;
  }
};

inline double Largest(const Doubles& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::abs(v));
  return most;
}
template <class A, class B>
double LargestDifference(const A& a, const B& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}
/// Peak signal-to-noise ratio in dB against the largest value of `truth`.
template <class A>
double Psnr(const A& image, const Doubles& truth) {
  double sum = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double off = static_cast<double>(image[i]) - truth[i];
    sum += off * off / static_cast<double>(truth.size());
  }
  const double peak = Largest(truth);
  return 10 * std::log10(peak * peak / sum);
}
inline std::vector<float> Floats(const Doubles& values) { return {values.begin(), values.end()}; }

}  // namespace octavo::testing
