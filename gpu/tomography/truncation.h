#pragma once

#include <cstdint>
#include <vector>

// Detects whether an object is wider than the field of view, so that its projections do not end in
// air.
namespace octavo::inline gpu {

inline constexpr double kWidestObject =
    1.75;  // largest width of an object, divided by the field of view: memory grows with its square

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
  /// Width of the object divided by that of the field of view, 1.05 … kWidestObject, the mean over
  /// the slices that count. It is the width of the disc whose projections have the curvature of the
  /// mean projection (after the extension of projections by Hsieh et al. 2004). Suitable for
  /// TomographyConfig::support; 1 if not found.
  double width = 1;
};

/// Examines minus-logarithm sinograms in host memory, [slice, angle, detector]. A slice counts if,
/// at an end that counts, a tenth of its directions exceed a fifth of their maximum and exceed the
/// noise. A disc that is 2 % wider than the detector does so. Air need not be 0: a level at which
/// the projections stay towards their ends, and which is the same in many directions, counts as
/// air.
Truncation FindTruncation(const TruncationConfig& config, const std::vector<float>& sinograms);

}  // namespace octavo::inline gpu
