#include "server/engine/device_benchmark_reference.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace octavo::engine {

std::vector<double> ReferenceAscan(const SpectralConfig& config, const uint16_t* record) {
  const int64_t samples = config.samples_per_record, length = config.fft_length;
  const auto at = [&](int64_t j) {
    const auto i = static_cast<size_t>(std::clamp<int64_t>(j, 0, samples - 1));
    return static_cast<double>(record[i]) - static_cast<double>(config.background_spectrum[i]);
  };
  std::vector<std::complex<double>> spectrum, root;
  for (size_t j = 0; j < config.window.size(); ++j) {
    const double r = config.k_index[j], t = r - std::floor(r);
    const auto i = static_cast<int64_t>(std::floor(r));
    const double a = at(i - 1), b = at(i), c = at(i + 1), d = at(i + 2);  // Catmull-Rom
    const double v =
        b + t / 2 * ((c - a) + t * ((2 * a - 5 * b + 4 * c - d) + t * (3 * b - a - 3 * c + d)));
    spectrum.push_back(
        std::polar(static_cast<double>(config.window[j]) * v,
                   config.phase_rad.empty() ? 0.0 : static_cast<double>(config.phase_rad[j])));
  }
  for (int64_t i = 0; i < length; ++i)
    root.push_back(std::polar(
        1.0, 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length)));
  std::vector<double> values;
  const double lo = static_cast<double>(config.level_lo), hi = static_cast<double>(config.level_hi);
  for (int64_t z = config.first_bin; z < config.first_bin + config.depth; ++z) {
    std::complex<double> sum = 0;
    for (size_t j = 0; j < spectrum.size(); ++j)
      sum += spectrum[j] * root[static_cast<size_t>(z * static_cast<int64_t>(j) % length)];
    const double db = 20 * std::log10(std::max(std::abs(sum) / static_cast<double>(length), 1e-30));
    values.push_back((db - lo) / (hi - lo) * 255);
  }
  return values;
}

}  // namespace octavo::engine
