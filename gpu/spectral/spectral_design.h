#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

// Tables of the spectral chain, computed once in double precision.
namespace octavo::inline gpu {

enum class WindowKind : uint8_t { kRect, kHann, kHamming, kGauss, kBlackman, kFlatTop };

/// Symmetric window of n samples (n = 1 gives 1). Hann: 0.5 - 0.5 cos(2πj/(n-1)). Gauss: sigma 0.4
/// of the half length.
std::vector<float> MakeWindow(WindowKind kind, int64_t n);

/// Phase a2·d² + a3·d³ in rad, d = j - n/2 (n/2 as a real number).
std::vector<float> MakeDispersionPhase(double a2, double a3, int64_t n);

/// k_index r[j] = Σ c_i j^i for j = 0 ... samples-1, clamped where it leaves 0 ... samples-1 by
/// less than one sample. InvalidArgument ("k_linearisation.polynomial"), naming the first index, if
/// it leaves the range by more or decreases.
absl::StatusOr<std::vector<double>> KIndexFromPolynomial(std::span<const double> coefficients,
                                                         int64_t samples);

/// k_index from a strictly monotonic wavelength axis in nm: k = 2π/λ made ascending, r =
/// interp(linspace(k₀,k_end), k, 0…S-1). For ascending wavelengths r runs over the reversed
/// spectrum; the function returns it in terms of the spectrum as stored, mirrored so that it is
/// non-decreasing (depth magnitudes are unchanged by reversing the spectrum). InvalidArgument
/// ("k_linearisation.wavelength_nm") names the first bad index.
absl::StatusOr<std::vector<double>> KIndexFromWavelength(std::span<const double> wavelength_nm);

/// Depth per bin in µm of a transform of length fft_length over the band of `wavelength_nm`: π /
/// (n_refr · δk · F), δk the k step.
double AxialSpacingUm(std::span<const double> wavelength_nm, int64_t fft_length,
                      double refractive_index);

}  // namespace octavo::inline gpu
