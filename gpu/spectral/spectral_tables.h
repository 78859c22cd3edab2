#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "gpu/spectral/spectral.h"

// The numbers of a chain that do not depend on the backend. Each is computed in one place, on the
// host, and every implementation of the chain (host, cuFFT, fused) uses the result. Tables of a
// transform (twiddles, chirps) belong to the transform.
namespace octavo::inline gpu {

/// Tables over the N points of the k-linearised spectrum.
struct SpectralTables {
  // k-linearisation: point j is the sum over t of weights[j, t] · sample[tap[j] + t - before] with
  // math::TapsBefore before. Both empty without interpolation.
  std::vector<int32_t> tap;    // [N]: the sample left of the position
  std::vector<float> weights;  // [N, math::Taps]
  // Window × dispersion × 1/F, in double precision, so that a backend that multiplies it by another
  // factor (1/2 for a real transform, a chirp) rounds once, at the end.
  std::vector<std::complex<double>> window;  // [N]
};
SpectralTables MakeSpectralTables(const SpectralConfig& config);

/// k-linearisation as positions (math::PositionBits), [N]; without interpolation point j is sample
/// j. For at most 4096 samples.
std::vector<uint32_t> MakePositions(const SpectralConfig& config);

/// Whether the transform is that of real numbers: without dispersion, of even length.
bool TransformsReal(const SpectralConfig& config);

/// Levels: stored number = value × scale + offset, before it is rounded and clipped.
template <class T>
struct LevelScale {
  T scale = 1, offset = 0;
};
/// The levels in the precision of T. Use float to apply them directly to a value, and double to
/// multiply them by other factors first. 1 and 0 without levels.
template <class T>
LevelScale<T> MakeLevelScale(const SpectralConfig& config);
extern template LevelScale<float> MakeLevelScale(const SpectralConfig& config);
extern template LevelScale<double> MakeLevelScale(const SpectralConfig& config);

}  // namespace octavo::inline gpu
