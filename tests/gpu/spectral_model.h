#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "gpu/spectral.h"

namespace octavo::testing {

/// The spectral chain in double precision with a plain DFT: written from the equations, shares nothing with the backends.
/// `record` holds S samples; the result D complex depth samples.
inline std::vector<std::complex<double>> ModelDepth(const SpectralConfig& c, const std::vector<double>& record,
                                                    const std::vector<double>& background) {
  const auto samples = static_cast<int64_t>(record.size());
  const auto at = [&](int64_t i) {
    const auto k = static_cast<size_t>(std::clamp<int64_t>(i, 0, samples - 1));
    return record[k] - (background.empty() ? 0.0 : background[k]);
  };
  const size_t n = c.window.size();
  std::vector<std::complex<double>> y(n);
  for (size_t j = 0; j < n; ++j) {
    double v;
    if (c.interpolation == math::Interpolation::kNone) {
      v = at(static_cast<int64_t>(j));
    } else {
      const double r = c.k_index[j], t = r - std::floor(r);
      const auto i = static_cast<int64_t>(std::floor(r));
      if (c.interpolation == math::Interpolation::kLinear) {
        v = (1 - t) * at(i) + t * at(i + 1);
      } else {
        const double p0 = at(i - 1), p1 = at(i), p2 = at(i + 1), p3 = at(i + 2);
        v = 0.5 * (2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t * t + (3 * p1 - p0 - 3 * p2 + p3) * t * t * t);
      }
    }
    y[j] = v * static_cast<double>(c.window[j]) * std::polar(1.0, c.phase_rad.empty() ? 0.0 : static_cast<double>(c.phase_rad[j]));
  }
  std::vector<std::complex<double>> root(static_cast<size_t>(c.fft_length));
  for (size_t k = 0; k < root.size(); ++k) {
    root[k] = std::polar(1.0, 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(c.fft_length));
  }
  std::vector<std::complex<double>> depth(static_cast<size_t>(c.depth));
  for (size_t z = 0; z < depth.size(); ++z) {
    std::complex<double> sum = 0;
    const size_t bin = static_cast<size_t>(c.first_bin) + z;
    for (size_t j = 0; j < n; ++j) sum += y[j] * root[bin * j % root.size()];
    depth[z] = sum / static_cast<double>(c.fft_length);
  }
  return depth;
}

/// Value of a depth sample, in value units.
inline double ModelValue(const SpectralConfig& c, std::complex<double> z) {
  if (c.value == math::Value::kDb) return 20 * std::log10(std::max(std::abs(z), 1e-15));
  return c.value == math::Value::kPower ? std::norm(z) : std::abs(z);
}

/// Stored integer: rounded half away from zero and clipped.
inline double ModelInteger(const SpectralConfig& c, double value) {
  const double top = c.output == DType::kU8 ? 255 : 65535;
  const double x = (value - c.level_lo) / (static_cast<double>(c.level_hi) - c.level_lo) * top;
  return std::clamp(std::floor(x + 0.5), 0.0, top);
}

}  // namespace octavo::testing
