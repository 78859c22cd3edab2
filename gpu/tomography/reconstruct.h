#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/math/rotation.h"

namespace octavo::inline gpu {

/// kAuto: kFourier or kFbp (ChooseAlgorithm).
enum class TomographyAlgorithm { kSirt, kMlem, kCgls, kFbp, kFourier, kAuto, kTv };

/// Whether the algorithm has iterations; the others are direct.
constexpr bool IsIterative(TomographyAlgorithm algorithm) {
  return algorithm == TomographyAlgorithm::kSirt || algorithm == TomographyAlgorithm::kMlem ||
         algorithm == TomographyAlgorithm::kCgls || algorithm == TomographyAlgorithm::kTv;
}

/// kCorrected, the default, honours the centre and has the true scale. kTomopy reproduces TomoPy's
/// accelerated CPU code (sirt and mlem only), including its centre, start value, leak and factors,
/// for comparison with existing results.
enum class TomographyForm { kCorrected, kTomopy };

enum class ProjectionFilter { kRamp, kSheppLogan, kCosine, kHann, kHamming, kParzen, kButterworth };

/// A parallel-beam reconstruction. Bin d of the detector lies (d − centre) pixels from the axis; x
/// points right, y up, angles turn counter-clockwise: a ray at distance s from the axis is x cos θ
/// + y sin θ = s.
struct TomographyConfig {
  TomographyAlgorithm algorithm = TomographyAlgorithm::kSirt;
  TomographyForm form = TomographyForm::kCorrected;
  /// kAuto: kFourier only if one pair of slices needs at most so many bytes; 0 = a quarter of the
  /// device's memory, which is the most in any case.
  int64_t auto_bytes = 0;
  std::vector<double> angles_rad;  // one per projection, any order, at least 1; fbp and fourier
                                   // weight them by their gaps (AngleWeights)
  int64_t detectors = 0;           // bins of a projection, 2 … 32768
  int64_t slices = 0;              // most slices of a run, 1 … 4096
  std::vector<double>
      centers;  // pixel index of the axis: one, or one per slice; empty = (detectors − 1)/2
  /// Further axes that the automatic padding allows for: those of slices that other runs make. So a
  /// slice does not depend on the others of its run.
  std::vector<double> padding_centers;
  int64_t image_size = 0;  // rows and columns of the result; 0 = detectors
  double pixel_size = 1;   // of image and detector, > 0; the result is in 1/unit
  math::RayInterpolation interpolation = math::RayInterpolation::kLinear;

  /// Pixels added on every side during the iterations and cut off at the end, for material that the
  /// rays cross outside the result. kAutomaticPadding pads to the edge of the field that the
  /// detector covers from every direction: its nearer end, or its farther end for scans over 360°.
  static constexpr int64_t kAutomaticPadding = -1;
  int64_t padding = kAutomaticPadding;
  /// Factor on the extent of automatic padding (iterative algorithms only), 1 … 4. Above 1, the
  /// padding also covers at least the farthest ray. Use a factor above 1 for objects wider than the
  /// detector: the rays also cross material outside the field of view, which accumulates at the rim
  /// if the grid has no room for it (Ziegler et al. 2008). The result is cut to the circle that it
  /// would have with a factor of 1.
  double support = 1;
  double mask_ratio = 1;  // radius of the circle that is reconstructed, as a part of half the
                          // (padded) grid's width; 0 = the whole grid
  bool has_min = false, has_max = false;
  double min_value = 0, max_value = 0;  // bounds of every pixel after every update

  int64_t iterations = 1;
  double relaxation = 1;  // sirt: 0 < λ < 2
  /// tv: the weight w > 0 of ½ ‖A x − b‖² + w N p² Σ |∇x|, with N angles, pixel size p and
  /// differences of neighbouring pixels. In units of x; small structure of a contrast below about w
  /// vanishes, whatever the number of angles. 0 for the other algorithms.
  double tv_weight = 0;
  int64_t subsets = 1;  // sirt, mlem: ordered subsets of the angles, updated one after the other
  double stop_change =
      0;  // stop when ‖x − x before‖ / ‖x before‖ of every slice is smaller; up to 1, 0 = never
  double stop_residual = 0;  // stop when ‖b − A x‖ / ‖b‖ of every slice is smaller; as above
  double ratio_floor = 1e-6;           // mlem: least value of A x in b / A x, > 0
  bool negative_data_to_zero = false;  // mlem: negative data become 0; otherwise they are refused

  ProjectionFilter filter = ProjectionFilter::kRamp;  // direct algorithms
  double filter_cutoff = 1;  // direct: part of the Nyquist frequency that passes, (0, 1]
  double filter_order = 2;   // direct, butterworth: (0, 32]
  bool extend_edges =
      false;  // direct: continue rows with their end values, for objects wider than the detector
  static constexpr double kUsualAccuracy = 1e-4;
  double fourier_accuracy = kUsualAccuracy;  // fourier: relative error of the gridding, 1e-6 … 1e-2

  int64_t piece_samples = 0;  // approximate limit of the interpolated values between two calls of
                              // the callback; 0 = some tenths of a second
};

/// The report of one iteration. Norms are per slice.
struct IterationReport {
  int64_t iteration = 0;               // from 1
  int64_t iterations = 0;              // requested
  std::vector<double> residual_norms;  // ‖b − A x‖ of the image before this iteration's update
                                       // (with subsets: before the update of each subset)
  std::vector<double> changes;  // ‖x − x before‖ / ‖x before‖, infinite if x before is 0; with
                                // subsets over all their updates; empty in tomopy form
  /// tv: by how much w N p² Σ |∇x| exceeds what the dual variables account for, 0 at the minimum,
  /// and all of what is minimised, at the image that is extrapolated from before this iteration's
  /// update. Empty for the other algorithms.
  std::vector<double> variation_gaps, objectives;
};

enum class TomographyStop { kIterations, kChange, kResidual, kCallback };

struct TomographyResult {
  TomographyStop stop = TomographyStop::kIterations;
  IterationReport last;
};

/// Sinograms in device memory, f32.
struct TomographyInput {
  DeviceSpan<const float> data;
  bool angle_first = false;  // [angle, slice, detector], else [slice, angle, detector]
  int64_t slices = 0;        // 1 … config.slices
};

struct GridTable;  // gpu/tomography/fourier.h
/// Tables on the device that plans share which differ only in their axes, and therefore the batches
/// of a job with an axis for each slice. Empty at first; Create takes what fits and replaces what
/// does not. DeviceBytes counts them. For one thread at a time, and one device.
struct SharedTables {
  std::shared_ptr<const GridTable> grid;  // fourier
};

/// Plan once, run often, one run at a time. Only Create allocates memory.
class Reconstructor {
 public:
  /// Run calls it on its own thread after every iteration; false = stop here (the image so far is
  /// the result). Run also calls it with iteration 0, and nothing else set, between pieces of work
  /// (config.piece_samples); false = give up: Run returns Cancelled.
  using Callback = std::function<bool(const IterationReport&)>;

  /// InvalidArgument names the field; ResourceExhausted if the device has too little memory.
  /// `shared` may be null.
  static absl::StatusOr<std::unique_ptr<Reconstructor>> Create(const TomographyConfig& config,
                                                               Device& device,
                                                               SharedTables* shared = nullptr);
  /// The bytes of device memory that Create would take. InvalidArgument as Create.
  static absl::StatusOr<int64_t> DeviceBytes(const TomographyConfig& config, Device& device);

  virtual ~Reconstructor() = default;
  /// Reconstructs into `images`, device f32 [slice, image_size, image_size], row 0 on top (largest
  /// y). `initial`: start images of the same shape, or null for the algorithm's own (sirt, cgls, tv
  /// 0, mlem 1; tomopy form 1e-6). Enqueues on `stream` and waits for each iteration.
  /// InvalidArgument for data that are not finite, or negative for mlem; Cancelled if the callback
  /// gave up.
  virtual absl::StatusOr<TomographyResult> Run(StreamRef stream, const TomographyInput& input,
                                               DeviceSpan<const float> initial,
                                               DeviceSpan<float> images,
                                               const Callback& callback) = 0;
  /// What Run does: the configuration's algorithm, or what kAuto stands for.
  virtual TomographyAlgorithm algorithm() const = 0;
  /// For use within a callback: enqueues a copy of the present image of one slice into device f32
  /// [image_size, image_size].
  virtual absl::Status CopyImage(StreamRef stream, int64_t slice, DeviceSpan<float> image) = 0;
};

/// The algorithm that Create uses: config.algorithm, or what kAuto stands for on this device. It
/// is kFourier where that takes less time than kFbp for this size and this number of angles,
/// config.auto_bytes allows what one pair of slices needs, and the interpolation is linear; for
/// this its error is known to be that of kFbp or less, to 0.1 dB. It does not depend on the number
/// of slices. `config` must be valid.
TomographyAlgorithm ChooseAlgorithm(const TomographyConfig& config, Device& device);

}  // namespace octavo::inline gpu
