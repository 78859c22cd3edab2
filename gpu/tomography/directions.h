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
  /// At least two angles, finite, in any order, over any number of turns.
  explicit Directions(const std::vector<double>& angles_rad);

  /// At most `most` pairs of views, spread evenly over the directions. Each view is a linear fit
  /// through the projections of its `neighbours` nearest directions, because a scan over half a
  /// turn has its only pair beyond its ends. Empty if no two views are opposite.
  std::vector<OppositeViews> Opposites(int64_t neighbours, int64_t most) const;
  double step() const { return step_; }  // between neighbours of one half turn, rad; the median

 private:
  struct Look {
    double direction = 0;  // −π … 2π
    int64_t row = 0;
  };
  bool Estimate(int half, double direction, int64_t neighbours, WeightedRows* out) const;

  std::vector<Look>
      looks_[2];  // from one side and from the other, by direction; those within reach of 0 … π
  std::vector<double> between_;  // directions 0 … π where the side changes
  double step_ = 0;
};

/// One half turn of a scan, in the order of the angles: projections and their angles, which rise
/// from the first one's.
struct HalfTurn {
  std::vector<int64_t> rows;
  std::vector<double> angles_rad;
};
/// InvalidArgument "angles_rad" if a part of the half turn has no projection: more than four mean
/// steps and 2°, or 90°.
absl::StatusOr<HalfTurn> OneHalfTurn(const std::vector<double>& angles_rad);

/// The angles of a scan over one half turn as they would be if its last projection were one step
/// farther, or one step less far: files do not distinguish scans whose last projection repeats the
/// first one from scans that end a step before. Empty for other scans.
std::vector<double> OtherEnd(const std::vector<double>& angles_rad);

}  // namespace octavo::inline gpu
