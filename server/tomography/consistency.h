#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace octavo::tomography {

/// How well parallel projections fit together: the conditions of order 0 and 1 of S. Helgason ("The
/// Radon transform on Euclidean spaces, compact two-point homogeneous spaces and Grassmann
/// manifolds", Acta Math. 113 (1965) 153-180) and D. Ludwig ("The Radon transform on Euclidean
/// space", Comm. Pure Appl. Math. 19 (1966) 49-81). The projection of an object at the angle t has
/// a sum that does not depend on t, and a centre of mass that moves as c + a cos t + b sin t, c the
/// axis. Conditions of higher orders hold for an object that moves along the detector, too, so they
/// would add noise alone.
struct Consistency {
  double mass_deviation = 0;    // root mean square, relative to the mean sum
  double center_deviation = 0;  // root mean square, columns
  /// sqrt(mass_deviation^2 + (center_deviation / r)^2), r the standard deviation of the columns of
  /// a projection, weighted by its values. 0 = perfect.
  double score = 0;
  double center_distance = 0;  // root mean square, of the centres of mass from the axis, columns
  double center_noise = 0;     // deviation of a centre by the noise of the columns, columns
  double width = 0;            // r, the mean over the slices
  /// Whether the centres of mass move about the axis, but not on the path of an object that turns:
  /// by far more than noise, and by a good part of their distance. `axis_seen`: opposite
  /// projections show the axis, so that more is needed for a doubt.
  bool off_path(bool axis_seen) const;
};

/// Of sinograms [slice, angle, column] of line integrals. A slice counts as the square of its mean
/// sum. `axes`: columns of the rotation axis, one per slice; empty: whatever fits best. Nothing if
/// the slices show no object, or one that reaches an end of the detector in most projections.
std::optional<Consistency> ConsistencyOf(const std::vector<float>& sinograms,
                                         const std::vector<double>& angles_rad, int64_t columns,
                                         const std::vector<double>& axes);

}  // namespace octavo::tomography
