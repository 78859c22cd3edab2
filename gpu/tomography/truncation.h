#pragma once

#include <cstdint>
#include <vector>

// Detects whether an object is wider than the field of view, so that its projections do not end in
// air.
namespace octavo::inline gpu {

inline constexpr double kWidestObject =
    1.75;  // against the field of view, that an object is taken for: memory goes with the square

struct TruncationConfig {
  std::vector<double> angles_rad;  // one per projection, in any order
  int64_t slices = 1;
  int64_t detectors = 0;
  std::vector<double> centers;     // pixel index of the axis: one, or one per slice
  bool left = true, right = true;  // ends of the detector that count (EndsThatBound)
};

/// For each end of the detector, the fraction of directions in which the object reaches it, in the
/// slice where that fraction is largest.
struct Truncation {
  double left = 0, right = 0;
  bool found = false;
  /// Width of the object against that of the field of view, 1.05 … kWidestObject, in the mean of
  /// the slices that count: the disc whose projections bend as the mean projection does (after
  /// Hsieh et al. 2004, who extend projections so). Good for TomographyConfig::support; 1 if not
  /// found.
  double width = 1;
};

/// Of minus-logarithm sinograms in host memory, [slice, angle, detector]. A slice counts if at an
/// end that counts a tenth of its directions show more than a fifth of what they show at most, and
/// more than noise: a disc that is 2 % wider than the detector does. Air need not be 0: a level
/// that the projections stay at towards their ends, the same in many directions, is taken for it.
Truncation FindTruncation(const TruncationConfig& config, const std::vector<float>& sinograms);

}  // namespace octavo::inline gpu
