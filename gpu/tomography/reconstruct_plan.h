#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu {

/// A configuration checked and turned into tables. Angles are reordered: subset after subset in the
/// order of their use, in each first those that step along rows, neighbours side by side.
struct TomographyPlan {
  int64_t image_size = 0;  // of the result
  int64_t grid_size = 0;   // while iterating
  float radius = 0;
  float cut_radius = 0;  // of the result, where the support is wider; 0 = it is cut by `radius`
  bool shared_center = true;
  std::vector<float> centers;  // one, or one per slice
  std::vector<int32_t> order;  // the configuration's index of each angle
  std::vector<math::ForwardAngle> forward;
  std::vector<math::BackAngle> back;
  std::vector<AngleRange> subsets;
};

/// InvalidArgument naming the field of `config`.
absl::Status CheckTomography(const TomographyConfig& config);

/// Of a configuration that was checked.
TomographyPlan PlanTomography(const TomographyConfig& config);

/// Ends of the detector from which the circle's radius comes: for scans over 360° the farther one
/// of the axis, else either.
struct BoundingEnds {
  bool left = true, right = true;
};
BoundingEnds EndsThatBound(const std::vector<double>& angles_rad, int64_t detectors, double center);

/// Weight of each projection in fbp: the part of the half turn of directions that is nearest to its
/// own direction, in radians. Projections of the same direction share a part, and so do projections
/// half a turn apart. A gap of more than eight usual gaps and of more than 13 degrees has no
/// neighbours that know more about it than the others do, so all projections share it. The weights
/// add up to half a turn. Evenly spaced angles (to a thousandth) have the same weight, to the last
/// bit.
std::vector<double> AngleWeights(const std::vector<double>& angles_rad);

/// Filter of fbp in space, [2 · detectors − 1] taps, the middle one of distance 0; the edge sums
/// are empty unless the edges are extended.
struct ProjectionFilterTaps {
  std::vector<float> taps, edge_left, edge_right;
};
ProjectionFilterTaps DesignProjectionFilter(const TomographyConfig& config);

}  // namespace octavo::inline gpu
