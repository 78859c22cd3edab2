#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

// The k-linearisation of a spectrometer from what it sees of a mirror. Host, double precision: once
// per instrument.
namespace octavo::inline gpu {

struct KCalibrationOptions {
  int64_t least_bin =
      8;  // where the reflector's peak is looked for: below lies what the background left
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

/// What CalibrateK checks of `options` for records of `samples`: InvalidArgument names the option.
absl::Status CheckOptions(int64_t samples, const KCalibrationOptions& options);

/// The fringe of a single reflector at depth z is cos(2 z k(j) + const): the phase of its analytic
/// signal (the positive frequencies around its peak) is linear in k. A polynomial is fitted to the
/// unwrapped phase, weighted by the fringe's power, and inverted for equal steps of phase.
/// Dispersion that the reflector sees counts as part of k.
///   spectrum  [S] a record less its background, S = 16 ... 65536
///   errors    InvalidArgument (options by their names); FailedPrecondition NO_FRINGE where no peak
///             stands out (4 times the mean of its
///             surroundings), PHASE_NOT_MONOTONIC where the fit turns back
/// Source: Wojtkowski et al., phase of the analytic signal (oct-processing.md §6).
absl::StatusOr<KCalibration> CalibrateK(std::span<const double> spectrum,
                                        const KCalibrationOptions& options);

/// r[j] = Σ c_i j^i that best fits `index` [S], with r[0] = 0 and r[S-1] = S-1 exactly.
std::vector<double> FitIndexPolynomial(std::span<const double> index, int64_t degree);

}  // namespace octavo::inline gpu
