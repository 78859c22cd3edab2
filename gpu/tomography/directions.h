#pragma once

// Private to center*.cc: the projections of a scan, arranged by viewing direction.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace octavo::inline gpu {

/// A sinogram row at an arbitrary angle, as a weighted sum of projections.
struct WeightedRows {
  std::vector<int64_t> rows;
  std::vector<double> weights;
};

/// Two views along the same rays, half a turn apart. One is the mirror image of the other about the
/// axis.
struct OppositeViews {
  WeightedRows front, behind;
  double quality = 0;  // 1 / variance of their difference where each projection's is 1
};

class Directions {
 public:
  /// `angles_rad`: at least two, finite, in any order, over any number of turns.
  explicit Directions(const std::vector<double>& angles_rad);

  /// Returns at most `most` pairs of views, spread evenly over the directions. Each view is a
  /// linear fit through the projections of its `neighbours` nearest directions, because the only
  /// opposite views of a scan over half a turn lie beyond its ends. Empty if no two views are
  /// opposite.
  std::vector<OppositeViews> Opposites(int64_t neighbours, int64_t most) const;
  double step() const { return step_; }  // median step between neighbours of one half turn, rad

 private:
  struct Look {
    double direction = 0;  // −π … 2π
    int64_t row = 0;
  };
  bool Estimate(int half, double direction, int64_t neighbours, WeightedRows* out) const;

  std::vector<Look>
      looks_[2];  // from one side and from the other, sorted by direction; only those near 0 … π
  std::vector<double> between_;  // the directions in 0 … π at which the side changes
  double step_ = 0;
};

/// The projections of one half turn of a scan and their angles, sorted by angle; the angles ascend
/// from that of the first projection.
struct HalfTurn {
  std::vector<int64_t> rows;
  std::vector<double> angles_rad;
};
/// InvalidArgument "angles_rad" if a part of the half turn has no projection: more than four mean
/// steps and 2°, or 90°.
absl::StatusOr<HalfTurn> OneHalfTurn(const std::vector<double>& angles_rad);

/// Returns the angles that a scan over one half turn would have if its last projection lay one step
/// farther, or one step less far. Files do not distinguish a scan whose last projection repeats the
/// first one from a scan that ends a step before. Empty for other scans.
std::vector<double> OtherEnd(const std::vector<double>& angles_rad);

}  // namespace octavo::inline gpu
