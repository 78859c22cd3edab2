#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "gpu/tomography/reconstruct.h"
#include "gpu/tomography/reconstruct_kernels.h"

namespace octavo::inline gpu {

/// The extents of a valid configuration. They take no tables of the angles, so that memory can be
/// planned often.
struct TomographyGrid {
  int64_t image_size = 0;  // of the result
  int64_t grid_size = 0;   // of the iterations
  float radius = 0;
  float cut_radius = 0;  // radius to which the result is cut if the support is wider; 0 = `radius`
  bool shared_center = true;
  std::vector<float> centers;  // one, or one per slice
};

/// The tables of a valid configuration. Angles are reordered: the subsets follow each other in the
/// order of their use. Within a subset the angles that step along rows come first, and neighbouring
/// angles lie side by side.
struct TomographyPlan : TomographyGrid {
  std::vector<int32_t> order;  // the configuration's index of each angle
  std::vector<math::ForwardAngle> forward;
  std::vector<math::BackAngle> back;
  std::vector<AngleRange> subsets;
};

/// InvalidArgument names the field of `config`.
absl::Status CheckTomography(const TomographyConfig& config);

/// InvalidArgument if some values of the projections are not finite.
absl::Status CheckProjectionsFinite(int64_t not_finite);

/// Valid but for a grid that is too large.
TomographyGrid PlanGrid(const TomographyConfig& config);
/// `config` must be valid (CheckTomography).
TomographyPlan PlanTomography(const TomographyConfig& config);

/// The ends of the detector that determine the circle's radius: for scans over 360° the end that is
/// farther from the axis, else both.
struct BoundingEnds {
  bool left = true, right = true;
};
BoundingEnds EndsThatBound(const std::vector<double>& angles_rad, int64_t detectors, double center);

/// Weight of each projection in fbp and fourier: the part of the half turn of directions that is
/// nearest to its own direction, in radians. Projections of the same direction share a part, and so
/// do projections half a turn apart. All projections share a gap of more than eight usual gaps and
/// of more than 13 degrees, because its neighbours hold no more information about it than the
/// others do. The weights add up to half a turn. Evenly spaced angles (to a thousandth) have the
/// same weight, to the last bit.
std::vector<double> AngleWeights(const std::vector<double>& angles_rad);

/// What the back step of a direct algorithm takes from a projection that stands for `weight`
/// radians of directions. Of `config` it reads pixel size and interpolation.
math::BackAngle BackAngleOf(const TomographyConfig& config, double angle_rad, double weight);

/// The filter of fbp and fourier in space: [2 · detectors − 1] taps, of which the middle one has
/// distance 0. The edge sums are empty unless the edges are extended.
struct ProjectionFilterTaps {
  std::vector<float> taps, edge_left, edge_right;
};
ProjectionFilterTaps DesignProjectionFilter(const TomographyConfig& config);

}  // namespace octavo::inline gpu
