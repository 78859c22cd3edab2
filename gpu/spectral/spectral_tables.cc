#include "gpu/spectral/spectral_tables.h"

#include <cmath>

#include "gpu/device/dtype.h"
#include "gpu/math/spectral.h"

namespace octavo::inline gpu {

SpectralTables MakeSpectralTables(const SpectralConfig& c) {
  SpectralTables tables;
  for (const double r : c.k_index) {
    const double left = std::floor(r);
    float w[8];
    math::WeightsOf(c.interpolation, r - left, w);
    tables.tap.push_back(static_cast<int32_t>(left));
    tables.weights.insert(tables.weights.end(), w, w + math::Taps(c.interpolation));
  }
  for (size_t j = 0; j < c.window.size(); ++j) {
    const double w = static_cast<double>(c.window[j]) / static_cast<double>(c.fft_length),
                 phase = c.phase_rad.empty() ? 0.0 : static_cast<double>(c.phase_rad[j]);
    tables.window.emplace_back(w * std::cos(phase), w * std::sin(phase));
  }
  return tables;
}

std::vector<uint32_t> MakePositions(const SpectralConfig& c) {
  std::vector<uint32_t> positions;
  for (size_t j = 0; j < c.window.size(); ++j) {
    positions.push_back(math::PositionBits(
        c.interpolation == math::Interpolation::kNone ? static_cast<double>(j) : c.k_index[j]));
  }
  return positions;
}

bool TransformsReal(const SpectralConfig& c) {
  return c.phase_rad.empty() && c.fft_length % 2 == 0;
}

template <class T>
LevelScale<T> MakeLevelScale(const SpectralConfig& c) {
  if (!c.has_levels) return {};
  const T bottom = static_cast<T>(LowestOf(c.output)), top = static_cast<T>(HighestOf(c.output)),
          lo = static_cast<T>(c.level_lo), hi = static_cast<T>(c.level_hi);
  const T scale = (IsInteger(c.output) ? top - bottom : T{1}) / (hi - lo);
  return {.scale = scale, .offset = bottom - lo * scale};
}
template LevelScale<float> MakeLevelScale(const SpectralConfig& config);
template LevelScale<double> MakeLevelScale(const SpectralConfig& config);

}  // namespace octavo::inline gpu
