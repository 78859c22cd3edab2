#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"

// Finds the rotation axis. All results are pixel indices as in TomographyConfig::centers: bin d
// lies d − centre pixels from the axis.
namespace octavo::inline gpu {

/// kVo: one half turn and its mirror image make a full turn; at the axis, the least of its Fourier
/// transform lies outside the double wedge (Vo et al. 2014, as tomopy's find_center_vo). kEntropy:
/// the trial FBP image with the sharpest histogram (after Donath et al. 2006 and tomopy's
/// find_center). kPhaseCorrelation: the shift between projections and the mirrored projections half
/// a turn later (after Guizar-Sicairos et al. 2008 and tomopy's find_center_pc). kPairs: the most
/// likely axis, given all projections and their opposites, with its uncertainty. It works with any
/// part of the detector, whether or not the object is wider.
enum class CenterMethod { kVo, kEntropy, kPhaseCorrelation, kPairs };

struct CenterConfig {
  CenterMethod method = CenterMethod::kVo;
  std::vector<double> angles_rad;  // one per projection, 2 … 65535, in any order
  int64_t slices =
      1;  // 1 … 4096; vo and entropy use their mean, phase correlation and pairs use all of them
  int64_t detectors = 0;  // 8 … 32768
  double search_min = -50,
         search_max =
             50;  // pixels from the middle (detectors − 1)/2, min <= max; limited to the detector

  double fine_radius = 6,
         fine_step = 0.25;    // vo: search around the coarse result, ≥ 1 and 0.05 … fine_radius
  double object_ratio = 0.5;  // vo: width of the object divided by that of the detector, (0, 4]
  int64_t drop = 20;          // vo: Fourier rows around the middle that are ignored, 0 … 1024

  double tolerance = 0.25;  // entropy, phase correlation: step of the last search, 0.01 … 1
};

struct CenterResult {
  double center = 0;     // pixel index of the axis
  bool at_edge = false;  // the best centre was at an end of the search: widen the search
  /// pairs: standard deviation of the centre, pixels; others 0. It has two parts, added as squares:
  /// how narrow the likelihood is at the centre, and how far parts of the scan disagree on the
  /// centre (jackknife; only with at least 8 directions, or else at least 4 slices).
  double uncertainty = 0;
  bool determined = true;  // pairs: no other axis within the search is nearly as likely
  /// pairs: 0, or a span of the angles that fits far better than the given one, because the half
  /// turn really ends a step later or earlier than the angles say.
  double fitting_span_rad = 0;
  /// The centres tried, ascending, and their scores. The least score is best for vo (scores of its
  /// fine search) and entropy (of its coarse search). The largest score is best for phase
  /// correlation and for pairs (logarithms of likelihood ratios).
  std::vector<double> centers, scores;
};

/// Sinograms in device memory, f32.
struct CenterInput {
  DeviceSpan<const float> data;
  bool angle_first = false;  // [angle, slice, detector], else [slice, angle, detector]
  CancelCheck goes_on = {};  // FindCenter calls it between pieces of work
};

/// The bytes of device memory that FindCenter takes. InvalidArgument names the field.
absl::StatusOr<int64_t> FindCenterBytes(const CenterConfig& config, Device& device);
/// Allocates memory, works on `stream` and waits for it. That takes from milliseconds to seconds,
/// or minutes without a GPU. InvalidArgument names the field, or reports data that are not finite;
/// ResourceExhausted if the device has too little memory; Cancelled if input.goes_on returned
/// false.
///   vo, entropy        minus-logarithm (vo: or transmission); a half turn without gaps of more
///                      than 2° and four steps
///   phase correlation  minus-logarithm or transmission; projections half a turn apart or, in scans
///                      of half a turn, a step less:
///   and pairs          InvalidArgument "angles_rad" where there are none
absl::StatusOr<CenterResult> FindCenter(StreamRef stream, const CenterConfig& config,
                                        const CenterInput& input, Device& device);

/// Overlap of the two halves of a scan over 360° with the axis near one side of the detector
/// (Stitching of gpu/tomography/preprocess.h).
struct OverlapConfig {
  int64_t angles = 0;       // 2 … 65535
  int64_t slices = 1;       // 1 … 4096
  int64_t detectors = 0;    // 8 … 32768
  int64_t half_turn = 0;    // projections between an angle and its opposite; 0 = angles / 2
  bool axis_right = false;  // axis near the last column, else near the first
  int64_t overlap_min = 4, overlap_max = 0;  // columns searched, 2 … detectors; max 0 = detectors
};
struct OverlapResult {
  double overlap = 0;      // columns, with parts of columns
  double center = 0;       // pixel index of the axis on the detector
  double correlation = 0;  // of the two halves at this overlap, −1 … 1
  bool at_edge = false;    // the best was at an end of the search
};
absl::StatusOr<int64_t> FindOverlapBytes(const OverlapConfig& config, Device& device);
/// Allocates memory and waits for `stream`. It returns the overlap with the largest correlation
/// coefficient of both halves, refined by a parabola through the neighbours. InvalidArgument names
/// the field, or reports data that are not finite.
absl::StatusOr<OverlapResult> FindOverlap(StreamRef stream, const OverlapConfig& config,
                                          const CenterInput& input, Device& device);

}  // namespace octavo::inline gpu
