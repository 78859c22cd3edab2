#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

// Calibrates the k-linearisation of a spectrometer from the fringe of a mirror. It runs on the host
// in double precision, because an instrument needs it only once.
namespace octavo::inline gpu {

struct KCalibrationOptions {
  int64_t least_bin = 8;          // lowest bin of the peak search: residual background lies below
  int64_t polynomial_degree = 5;  // of the smooth phase, 1 ... 15
  double edge = 0.05;  // share of the samples at each end that the fit leaves out, 0 ... 0.4
};

struct KCalibration {
  std::vector<double> index;       // r[j]: source position of each k-linear sample, 0 ... S-1,
                                   // increasing; r[0] = 0, r[S-1] = S-1
  std::vector<double> polynomial;  // c: r[j] = Σ c_i j^i, a fit of `index`
  double residual_rms_rad =
      0;  // of the measured phase against the smooth one, weighted by the fringe's power
  double peak_bin = 0;  // of the reflector after linearisation: turns of the phase over S samples
  double fringe_power = 0;  // Σ of the squared analytic amplitude
};

/// Checks `options` for records of `samples`, as CalibrateK does. InvalidArgument names the option.
absl::Status CheckOptions(int64_t samples, const KCalibrationOptions& options);

/// The fringe of a single reflector at depth z is cos(2 z k(j) + const): the phase of its analytic
/// signal (the positive frequencies around its peak) is linear in k. CalibrateK fits a polynomial
/// to the unwrapped phase, weighted by the fringe's power, and inverts it for equal steps of phase.
/// The dispersion on the path to the reflector counts as part of k.
///   spectrum  [S] a record less its background, S = 16 ... 65536
///   errors    InvalidArgument (options by their names); FailedPrecondition NO_FRINGE where no peak
///             stands out (4 times the mean of its surroundings), PHASE_NOT_MONOTONIC where the fit
///             turns back
/// Source: Wojtkowski et al., phase of the analytic signal (oct-processing.md §6).
absl::StatusOr<KCalibration> CalibrateK(std::span<const double> spectrum,
                                        const KCalibrationOptions& options);

/// r[j] = Σ c_i j^i that best fits `index` [S], with r[0] = 0 and r[S-1] = S-1 exactly.
std::vector<double> FitIndexPolynomial(std::span<const double> index, int64_t degree);

}  // namespace octavo::inline gpu
