#include "gpu/spectral/spectral_design.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {

using std::numbers::pi;

std::vector<float> MakeWindow(WindowKind kind, int64_t n) {
  std::vector<float> window(static_cast<size_t>(n), 1.0f);
  if (n < 2) return window;
  for (int64_t j = 0; j < n; ++j) {
    const double u = static_cast<double>(j) / static_cast<double>(n - 1), a = 2 * pi * u;
    double w = 1;
    switch (kind) {
      case WindowKind::kRect: break;
      case WindowKind::kHann: w = 0.5 - 0.5 * std::cos(a); break;
      case WindowKind::kHamming: w = 0.54 - 0.46 * std::cos(a); break;
      case WindowKind::kGauss: w = std::exp(-0.5 * std::pow((2 * u - 1) / 0.4, 2)); break;
      case WindowKind::kBlackman: w = 0.42 - 0.5 * std::cos(a) + 0.08 * std::cos(2 * a); break;
      case WindowKind::kFlatTop:
        w = 0.21557895 - 0.41663158 * std::cos(a) + 0.277263158 * std::cos(2 * a) -
            0.083578947 * std::cos(3 * a) + 0.006947368 * std::cos(4 * a);
        break;
    }
    window[static_cast<size_t>(j)] = static_cast<float>(w);
  }
  return window;
}

std::vector<float> MakeDispersionPhase(double a2, double a3, int64_t n) {
  std::vector<float> phase(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    const double d = static_cast<double>(j) - 0.5 * static_cast<double>(n);
    phase[static_cast<size_t>(j)] = static_cast<float>(a2 * d * d + a3 * d * d * d);
  }
  return phase;
}

absl::StatusOr<std::vector<double>> KIndexFromPolynomial(std::span<const double> coefficients,
                                                         int64_t samples) {
  constexpr char kField[] = "k_linearisation.polynomial";
  if (coefficients.empty()) return InvalidField(kField, "has no coefficients");
  const double top = static_cast<double>(samples - 1);
  std::vector<double> index(static_cast<size_t>(samples));
  double previous = -1;
  for (int64_t j = 0; j < samples; ++j) {
    double r = 0;
    for (size_t i = coefficients.size(); i-- > 0;) r = r * static_cast<double>(j) + coefficients[i];
    if (!(r > -1 && r < top + 1)) {
      return InvalidField(kField,
                          absl::StrCat("gives ", r, " at sample ", j, "; allowed 0 to ", top));
    }
    r = std::clamp(r, 0.0, top);
    if (r < previous)
      return InvalidField(kField,
                          absl::StrCat("decreases at sample ", j, ": ", r, " after ", previous));
    previous = r;
    index[static_cast<size_t>(j)] = r;
  }
  return index;
}

absl::StatusOr<std::vector<double>> KIndexFromWavelength(std::span<const double> wavelength_nm) {
  constexpr char kField[] = "k_linearisation.wavelength_nm";
  const size_t n = wavelength_nm.size();
  if (n < 2) return InvalidField(kField, absl::StrCat("has ", n, " values; allowed at least 2"));
  const bool descending = wavelength_nm[1] < wavelength_nm[0];
  std::vector<double> k(n);
  for (size_t j = 0; j < n; ++j) {
    if (!(wavelength_nm[j] > 0) || !std::isfinite(wavelength_nm[j])) {
      return FieldNotAllowed(kField, absl::StrCat(wavelength_nm[j], " at sample ", j), "> 0");
    }
    if (j > 0 && (descending ? wavelength_nm[j] >= wavelength_nm[j - 1]
                             : wavelength_nm[j] <= wavelength_nm[j - 1])) {
      return InvalidField(kField, absl::StrCat("is not strictly monotonic at sample ", j, ": ",
                                               wavelength_nm[j], " after ", wavelength_nm[j - 1]));
    }
    k[j] = 2 * pi / wavelength_nm[j];
  }
  // In stored order k rises (descending wavelength) or falls. A uniform grid from k[0] to k[n-1]
  // covers both cases, and r ascends in both. Falling k mirrors the spectrum, which does not change
  // the depth magnitudes.
  std::vector<double> index(n);
  const double step = (k[n - 1] - k[0]) / static_cast<double>(n - 1);
  size_t i = 0;
  for (size_t j = 0; j < n; ++j) {
    const double target = k[0] + step * static_cast<double>(j);
    while (i + 2 < n && (descending ? k[i + 1] <= target : k[i + 1] >= target)) ++i;
    const double t = (target - k[i]) / (k[i + 1] - k[i]);
    index[j] = std::clamp(static_cast<double>(i) + t, 0.0, static_cast<double>(n - 1));
  }
  return index;
}

double AxialSpacingUm(std::span<const double> wavelength_nm, int64_t fft_length,
                      double refractive_index) {
  const double k0 = 2 * pi / (wavelength_nm.front() * 1e-3),
               k1 = 2 * pi / (wavelength_nm.back() * 1e-3);  // rad/µm
  const double dk = std::abs(k1 - k0) / static_cast<double>(wavelength_nm.size() - 1);
  return pi / (refractive_index * dk * static_cast<double>(fft_length));
}

}  // namespace octavo::inline gpu
