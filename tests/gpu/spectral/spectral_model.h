#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <vector>

#include "gpu/spectral/spectral.h"

namespace octavo::testing {

// The spectral chain in double precision with a plain DFT. It follows the equations and shares no
// code with the backends.

/// Lanczos kernel of 4 lobes.
inline double ModelLanczos(double x) {
  if (x == 0) return 1;
  if (std::abs(x) >= 4) return 0;
  const double a = std::numbers::pi * x, b = a / 4;
  return std::sin(a) / a * (std::sin(b) / b);
}

/// Steps 1 to 4 for one record of S samples (the mean of the averaged records): D complex depth
/// samples.
inline std::vector<std::complex<double>> ModelDepth(const SpectralConfig& c,
                                                    const std::vector<double>& record,
                                                    const std::vector<double>& background) {
  const auto samples = static_cast<int64_t>(record.size());
  const auto at = [&](int64_t i) {
    const auto k = static_cast<size_t>(std::clamp<int64_t>(i, 0, samples - 1));
    return record[k] - (background.empty() ? 0.0 : background[k]);
  };
  const size_t n = c.window.size();
  std::vector<std::complex<double>> y(n);
  for (size_t j = 0; j < n; ++j) {
    double v = 0;
    if (c.interpolation == math::Interpolation::kNone) {
      v = at(static_cast<int64_t>(j));
    } else {
      const double r = c.k_index[j], t = r - std::floor(r);
      const auto i = static_cast<int64_t>(std::floor(r));
      if (c.interpolation == math::Interpolation::kLinear) {
        v = (1 - t) * at(i) + t * at(i + 1);
      } else if (c.interpolation == math::Interpolation::kCubic) {
        const double p0 = at(i - 1), p1 = at(i), p2 = at(i + 1), p3 = at(i + 2);
        v = 0.5 * (2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t * t +
                   (3 * p1 - p0 - 3 * p2 + p3) * t * t * t);
      } else {
        double sum = 0;
        for (int64_t k = i - 3; k <= i + 4; ++k) {
          const double w = ModelLanczos(r - static_cast<double>(k));
          v += w * at(k);
          sum += w;
        }
        v /= sum;
      }
    }
    y[j] = v * static_cast<double>(c.window[j]) *
           std::polar(1.0, c.phase_rad.empty() ? 0.0 : static_cast<double>(c.phase_rad[j]));
  }
  std::vector<std::complex<double>> root(static_cast<size_t>(c.fft_length));
  for (size_t k = 0; k < root.size(); ++k) {
    root[k] = std::polar(
        1.0, 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(c.fft_length));
  }
  std::vector<std::complex<double>> depth(static_cast<size_t>(c.depth));
  for (size_t z = 0; z < depth.size(); ++z) {
    double re = 0, im = 0;
    const size_t bin = static_cast<size_t>(c.first_bin) + z;
    for (size_t j = 0, k = 0; j < n; ++j) {
      re += y[j].real() * root[k].real() - y[j].imag() * root[k].imag();
      im += y[j].real() * root[k].imag() + y[j].imag() * root[k].real();
      k += bin;
      if (k >= root.size()) k -= root.size();
    }
    depth[z] = std::complex<double>(re, im) / static_cast<double>(c.fft_length);
  }
  return depth;
}

/// Step 5: the fixed pattern [D], computed from the A-scans of a B-scan.
inline std::vector<std::complex<double>> ModelPattern(
    const SpectralConfig& c, const std::vector<std::vector<std::complex<double>>>& ascans) {
  const size_t count = ascans.size(),
               segments =
                   c.fixed_pattern == math::FixedPattern::kQuietSegment && count >= 18 ? 9 : 1;
  std::vector<std::complex<double>> pattern(static_cast<size_t>(c.depth));
  for (size_t z = 0; z < pattern.size(); ++z) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < segments; ++s) {
      const size_t begin = count * s / segments, end = count * (s + 1) / segments;
      std::complex<double> mean = 0;
      for (size_t a = begin; a < end; ++a) mean += ascans[a][z] / static_cast<double>(end - begin);
      double variance = 0;
      for (size_t a = begin; a < end; ++a)
        variance += std::norm(ascans[a][z] - mean) / static_cast<double>(end - begin);
      if (variance >= least) continue;
      least = variance;
      pattern[z] = mean;
    }
  }
  return pattern;
}

/// Value of a depth sample that has power `power`, in value units.
inline double ModelValueOfPower(const SpectralConfig& c, double power) {
  if (c.value == math::Value::kDb) return 10 * std::log10(std::max(power, 1e-30));
  return c.value == math::Value::kPower ? power : std::sqrt(power);
}

/// Value of a depth sample, in value units; the magnitude if it is complex.
inline double ModelValue(const SpectralConfig& c, std::complex<double> z) {
  return c.value == math::Value::kReal ? z.real() : ModelValueOfPower(c, std::norm(z));
}

/// Stored integer: rounded half away from zero and clipped.
inline double ModelInteger(const SpectralConfig& c, double value) {
  const double bottom = c.output == DType::kI8 ? -128 : 0, top = c.output == DType::kI8   ? 127
                                                                 : c.output == DType::kU8 ? 255
                                                                                          : 65535;
  const double x = bottom + (value - c.level_lo) / (static_cast<double>(c.level_hi) - c.level_lo) *
                                (top - bottom);
  return std::clamp(std::round(x), bottom, top);
}

}  // namespace octavo::testing
