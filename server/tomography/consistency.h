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

/// The moments of the projections of one slice, in columns.
struct SliceMoments {
  std::vector<double> mass, center;  // of each projection
  double mean_mass = 0, width = 0;   // the standard deviation of columns, weighted by the values
  double ends = 1;                   // at the ends of the detector, relative to the highest value
  double center_noise = 0;           // of a centre
};
/// Of a sinogram [angle, column] of line integrals. By all threads that the caller's may use.
SliceMoments MomentsOf(const float* sinogram, int64_t angles, int64_t columns);

/// A slice counts as the square of its mean sum. `axes`: columns of the rotation axis, one per
/// slice; empty: whatever fits best. Nothing if the slices show no object, or one that reaches an
/// end of the detector in most projections.
std::optional<Consistency> ConsistencyOf(const std::vector<SliceMoments>& slices,
                                         const std::vector<double>& angles_rad,
                                         const std::vector<double>& axes);

}  // namespace octavo::tomography
