#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device.h"
#include "gpu/goes_on.h"

// Where the rotation axis is. All results are pixel indices as in TomographyConfig::centers: bin d lies d − centre pixels from the axis.
namespace octavo {

/// kVo: the scan and its mirror image make 360°; the axis is where least of their Fourier transform lies outside of the double wedge
/// (Vo et al. 2014, as tomopy's find_center_vo). kEntropy: sharpest histogram of trial FBP images (Donath et al. 2006, as tomopy's
/// find_center). kPhaseCorrelation: shift between a projection and the mirrored one half a turn later (Guizar-Sicairos et al. 2008,
/// as tomopy's find_center_pc).
enum class CenterMethod { kVo, kEntropy, kPhaseCorrelation };

struct CenterConfig {
  CenterMethod method = CenterMethod::kVo;
  std::vector<double> angles_rad;            // one per projection, 2 … 65535. vo: about half a turn in order
  int64_t slices = 1;                        // 1 … 4096; vo and entropy: their mean is used; phase correlation: all of them
  int64_t detectors = 0;                     // 8 … 32768
  double search_min = -50, search_max = 50;  // pixels from the middle (detectors − 1)/2, min <= max; held within the detector

  double fine_radius = 6, fine_step = 0.25;  // vo: search around the coarse result, ≥ 1 and 0.05 … fine_radius
  double object_ratio = 0.5;                 // vo: width of the object against that of the detector, (0, 4]
  int64_t drop = 20;                         // vo: Fourier rows left out around the middle, 0 … 1024

  double tolerance = 0.25;  // entropy, phase correlation: step of the last search, 0.01 … 1
  double mask_ratio = 1;    // entropy: circle of the image that is looked at, (0, 1]
};

struct CenterResult {
  double center = 0;     // pixel index of the axis
  bool at_edge = false;  // the best was at an end of the search: widen it
  /// Every centre tried and its score (vo, entropy: least is best; phase correlation: most is best), in the order of the centres.
  std::vector<double> centers, scores;
};

/// Sinograms in device memory, f32.
struct CenterInput {
  const float* data = nullptr;
  bool angle_first = false;  // [angle, slice, detector], else [slice, angle, detector]
  GoesOn goes_on = {};       // FindCenter asks it between pieces of work
};

/// Device memory that FindCenter takes, in bytes; InvalidArgument naming the field.
absl::StatusOr<int64_t> FindCenterBytes(const CenterConfig& config, Device& device);
/// Takes memory, works on `stream` and waits for it: from milliseconds to seconds, minutes without a GPU. InvalidArgument naming the
/// field, or for data that are not finite; ResourceExhausted if the device has not the memory; Cancelled if input.goes_on said no.
///   vo                 minus-logarithm or transmission, at least 2 angles over half a turn
///   entropy            minus-logarithm, any angles that FBP can use
///   phase correlation  the two angles nearest to half a turn apart are taken; InvalidArgument "angles_rad" if none are within 2°
absl::StatusOr<CenterResult> FindCenter(StreamRef stream, const CenterConfig& config, const CenterInput& input, Device& device);

/// Overlap of the two halves of a scan over 360° with the axis near one side of the detector (Stitching of gpu/tomo_prepare.h).
struct OverlapConfig {
  int64_t angles = 0;                         // 2 … 65535
  int64_t slices = 1;                         // 1 … 4096
  int64_t detectors = 0;                      // 8 … 32768
  int64_t half_turn = 0;                      // projections between an angle and its opposite; 0 = angles / 2
  bool axis_right = false;                    // axis near the last column, else near the first
  int64_t overlap_min = 16, overlap_max = 0;  // columns searched, 8 … detectors; max 0 = detectors
};
struct OverlapResult {
  double overlap = 0;      // columns, with parts of columns
  double center = 0;       // pixel index of the axis on the detector
  double correlation = 0;  // of the two halves there, −1 … 1
  bool at_edge = false;    // the best was at an end of the search
};
absl::StatusOr<int64_t> FindOverlapBytes(const OverlapConfig& config, Device& device);
/// Takes memory and waits for `stream`. The overlap with the largest correlation coefficient of both halves (parabola through the
/// neighbours). InvalidArgument naming the field, or for data that are not finite.
absl::StatusOr<OverlapResult> FindOverlap(StreamRef stream, const OverlapConfig& config, const CenterInput& input, Device& device);

}  // namespace octavo
