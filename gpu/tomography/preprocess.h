#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

// From raw projections to sinograms, on one device. Order of the stages
// (gpu/tomography/preprocess.cc):
//   outliers of single frames → flat and dark fields → roll of the detector and shifts of rows →
//   binning → phase retrieval → crop → air → minus logarithm → beam hardening → rings → 360° to
//   180°.
namespace octavo::inline gpu {

/// How the frames of a field are combined into one: by mean or median (for an even number, the mean
/// of the two middle values).
enum class FieldAverage { kMean, kMedian };

/// kSorting: Vo, Atwood, Drakopoulos 2018, algorithm 3. kLargeStripe: algorithm 5. kDeadStripe:
/// algorithm 6 (unresponsive and fluctuating columns), then 5. kAllStripe: 6, 5 and 3.
/// kFourierWavelet: Münch, Trtik, Marone, Stampanoni 2009.
enum class RingMethod { kSorting, kLargeStripe, kDeadStripe, kAllStripe, kFourierWavelet };

/// One ring removal on sinograms. Fields that a method does not use are ignored.
struct RingRemoval {
  RingMethod method = RingMethod::kSorting;
  int64_t sorting_window = 0;  // sorting, all: columns of the median, odd, 3 … 511; 0 = 21 if there
                               // are more than 2000 columns, else 1 %, at least 5
  int64_t stripe_window = 61;  // large, dead, all: columns of the median, odd, 3 … 511
  double snr = 3;              // large, dead, all: threshold of a stripe, > 0
  double drop_ratio = 0.1;     // large, dead, all: part of the sorted values that the mean ignores,
                               // both ends together, 0 … 0.8
  bool normalize = true;  // large, dead, all: also divides each column by the ratio of its mean to
                          // the smoothed mean
  int64_t wavelet_order = 5;    // Fourier-wavelet: Daubechies, vanishing moments 1 … 8
  int64_t wavelet_levels = 0;   // 0 = ceil(log2(largest of angles and detectors)); 1 … 16
  double wavelet_sigma = 2;     // width of the damping, in frequencies, > 0
  bool wavelet_padding = true;  // pads with zeros, an eighth of the angles
};

/// kPaganin: Paganin et al. 2002. kGeneralized: Paganin et al. 2020 (J. Opt. 22, 115607), less blur
/// of fine structure. kFarago: Faragó et al. 2024 (J. Synchrotron Rad. 31), the contrast transfer
/// function of a homogeneous object, also for distances at which the others no longer hold.
enum class PhaseMethod { kPaganin, kGeneralized, kFarago };

/// Single-distance phase retrieval of an object of one material: transmissions are divided in
/// Fourier space by
///   kPaganin      1 + α |k|²,                                 α = (δ/β) λ d / 4π
///   kGeneralized  1 − (2α / W²) (cos W k_x + cos W k_y − 2)
///   kFarago       cos χ + (δ/β) sin χ,                        χ = λ d |k|² / 4π
/// (|k| in rad per length); edge values are extended outwards. The minus logarithm after it is
/// μ·thickness. λ = 12.398419843 Å / energy.
struct PhaseRetrieval {
  bool enabled = false;
  PhaseMethod method = PhaseMethod::kPaganin;
  double pixel_size_um = 0;    // of raw columns and rows, before binning, 0.001 ... 1000
  double distance_mm = 0;      // object to detector, 0.001 ... 1e6
  double energy_kev = 0;       // 1 ... 1000
  double delta_beta = 0;       // δ/β, 0.01 ... 1e6
  double feature_size_um = 0;  // W of kGeneralized, 0.001 ... 1000; 0 = the size of a raw column
};

/// Replaces a pixel that differs too much from the median of its surroundings within its frame
/// (square, edges mirrored: c b a | a b c) by that median. Source: tomopy.misc.corr.remove_outlier.
struct OutlierRemoval {
  int64_t window = 0;     // rows and columns of the median, odd, 3 … 15; 0 = off
  double difference = 0;  // > 0, in counts of the input: x − median >= difference
  bool dark_too = false;  // also median − x >= difference
};

/// Turns each projection about the middle of the detector, so that an axis that leans by `degrees`
/// in the plane of the detector becomes parallel to its columns: the axis moves to larger columns
/// in larger rows by tan(degrees) columns per row. Transmissions are turned, by cubic convolution
/// (gpu/math/turning.h); beyond the ends of the detector its outermost pixels go on. A bin is then
/// the mean of its turned transmissions.
struct DetectorRoll {
  double degrees = 0;     // −5 … 5; 0 = off
  int64_t rows = 0;       // of the whole detector; 0 = PrepareConfig::rows
  int64_t first_row = 0;  // the row of the detector that comes first in the input
};

/// Moves each projection along the rows of the detector (the rotation axis), after the turn: row r
/// of the result shows row r + shift of the turned projection, by the same interpolation; beyond
/// the ends of the detector its outermost rows go on.
struct RowShifts {
  static constexpr double kMost = 64;
  std::vector<double> rows;  // one per raw projection, −kMost … kMost; empty = none
  double most = 0;           // rows are read as far as for shifts of this size; 0 … kMost
};

/// Turns a scan over 360°, with the axis near one side of the detector, into one over 180° of
/// nearly twice the width. Projection a + n is mirrored and joined to projection a, with linear
/// blending of the overlap. Both ends of the overlap are covered twice.
struct Stitching {
  bool enabled = false;
  bool axis_right = false;  // axis near the last column, else near the first
  double overlap = 0;  // columns (cropped, binned) that both halves see, 2 … columns; the axis lies
                       // (overlap − 1)/2 from that side (FindOverlap)
  int64_t half_turn =
      0;  // n: projections (binned) between an angle and its opposite; 0 = half of all
};

/// Flat fields that change during the scan (gpu/tomography/flat_components.h): the open beam of
/// projection a is the mean of the flat fields plus Σ_k weights[a · components + k] Σ_f mixture[f ·
/// components + k] flat_f.
struct FlatComponents {
  int64_t components = 0;       // 0 … 8, less than the flat fields; 0 = the beam does not change
  std::vector<double> mixture;  // [flat, component]
  std::vector<double> weights;  // [projection, component]
};

/// The input and the steps of preprocessing. `rows` counts all rows given. Outlier removal, roll
/// and phase retrieval read rows beyond the crop, so a job in chunks adds PrepareMargin() rows on
/// either side and crops them. All angles come in one run.
struct PrepareConfig {
  // -- input, in device memory, C order
  DType dtype = DType::kU16;  // of projections: u8, u16, i16, f32
  /// Of projections: not kNone, dtype is u16, and each row is of packed counts and begins at a
  /// byte.
  math::Packing packing = math::Packing::kNone;
  bool row_first = false;           // projections [row, angle, column], else [angle, row, column]
  int64_t angles = 0;               // 1 … 65535
  int64_t rows = 0;                 // 1 … 65535
  int64_t columns = 0;              // 2 … 32768
  DType field_dtype = DType::kU16;  // of flats and darks: u8, u16, i16, f32
  math::Packing field_packing = math::Packing::kNone;  // likewise, of flats and darks
  int64_t flats = 0;  // frames [flat, row, column], 0 … 4096; 0 = no division by flat fields
  int64_t darks = 0;  // frames [dark, row, column], 0 … 4096; 0 = zero everywhere

  // -- flat and dark fields: transmission = (x − dark) / max(flat − dark, denominator_floor)
  FieldAverage flat_average = FieldAverage::kMean, dark_average = FieldAverage::kMean;
  double denominator_floor = 1e-6;  // > 0
  /// Flats taken several times: the number of frames of each series, in total `flats`. Between two
  /// series the flat field is interpolated linearly in time; before the first and after the last it
  /// is constant. Empty = one series.
  std::vector<int64_t> flat_series;
  std::vector<double> flat_times;   // one per series, increasing, in the unit of angle_times
  std::vector<double> angle_times;  // one per projection; empty = their indices
  FlatComponents flat_components;   // not with several series, nor with the median of flat fields
  bool has_cutoff = false;
  double cutoff = 1;  // with has_cutoff: largest transmission, > 0

  OutlierRemoval outliers;  // applies to projections, flats and darks
  int64_t bin_rows = 1, bin_columns = 1,
          bin_angles = 1;  // 1, 2, 4; a bin is its sum of counts over its sum of fields (with a
                           // roll the mean of its transmissions); an incomplete last bin is dropped
  int64_t crop_row = 0,
          crop_rows = 0;  // raw rows kept, from crop_row on; crop_rows 0 = all to the end
  int64_t crop_column = 0, crop_columns = 0;  // the same for columns

  DetectorRoll roll;
  RowShifts shifts;  // not with bins of projections
  PhaseRetrieval phase;
  /// Divides the transmissions of each row of each projection by the air level: the mean over this
  /// many columns (cropped, binned) at the left and at the right end, interpolated linearly in
  /// between. If one number is 0, the other end's level is used; both 0 = off. tomopy normalize_bg.
  int64_t air_left = 0, air_right = 0;

  /// −log(max(transmission, log_floor)), so zero, negative and −∞ become −log(log_floor). NaN and
  /// +∞, from input or fields, become `not_finite_value` in the result, with and without the
  /// logarithm; 0 is "nothing there" with it.
  bool minus_log = true;
  /// Correction of beam hardening: a line integral p becomes Σ_k beam_hardening[k] p^(k + 1). Up to
  /// 6 finite coefficients, of which the first is above 0; empty = none. Herman 1979 (Phys. Med.
  /// Biol. 24).
  std::vector<double> beam_hardening;
  double log_floor = 1e-6;  // > 0
  double not_finite_value = 0;

  Stitching stitching;
  std::vector<RingRemoval> rings;  // in this order; at most 8
};

/// Shape of the output: f32 [slice, angle, detector].
struct PreparedShape {
  int64_t slices = 0, angles = 0, detectors = 0;
  int64_t elements() const { return slices * angles * detectors; }
};

/// InvalidArgument names the field ("phase.energy_kev").
absl::Status CheckPhase(const PhaseRetrieval& phase);
/// InvalidArgument names the field ("row_shifts").
absl::Status CheckShifts(const PrepareConfig& config);
/// InvalidArgument names the field ("roll_degrees", "roll_rows").
absl::Status CheckRoll(const PrepareConfig& config);
/// InvalidArgument names the field ("crop_rows", "rings[1].snr").
absl::StatusOr<PreparedShape> CheckPrepare(const PrepareConfig& config);
/// The number of rows beyond the crop on either side that influence it: by windows of outliers, by
/// the roll and the shifts, and by the reach of phase retrieval (to 1e-3).
int64_t PrepareMargin(const PrepareConfig& config);
/// Computes the angles of the prepared projections from those of the raw projections, in any unit:
/// the mean of binned projections, the first half turn of stitched ones. Binned angles must not
/// jump by a whole turn within a bin.
std::vector<double> PreparedAngles(const PrepareConfig& config, const std::vector<double>& angles);
/// Converts the pixel index of the axis among raw columns to that among prepared detectors. With
/// stitching, the overlap determines the axis, and `raw_center` is ignored. With a roll, raw
/// columns are those of the turned projections.
double PreparedCenter(const PrepareConfig& config, double raw_center);

struct PrepareInput {
  const void* projections = nullptr;  // device, config.dtype or packed rows
  const void* flats =
      nullptr;  // device, config.field_dtype or packed rows; null if config.flats is 0
  const void* darks =
      nullptr;  // device, config.field_dtype or packed rows; null if config.darks is 0
  CancelCheck goes_on =
      {};  // Run calls it between pieces of work, after it has waited for the stream
};

/// Counts of unusual values during a run, over the cropped output. Binned pixels count once. With a
/// roll, `cut` and `unlit` count pixels before the turn, unbinned and beyond the crop, too.
struct PrepareCounts {
  int64_t outliers = 0;    // pixels replaced by medians, including fields and rows beyond the crop
  int64_t not_finite = 0;  // became not_finite_value
  int64_t floored = 0;     // transmissions below log_floor
  int64_t cut = 0;         // transmissions above cutoff; with phase retrieval also beyond the crop
  int64_t unlit = 0;  // transmissions that denominator_floor determined, at least in part, because
                      // the flat field is not brighter than the dark field there
};

/// Plan once, run often. Only Create allocates memory.
class Preparer {
 public:
  /// InvalidArgument names the field; ResourceExhausted if the device has too little memory.
  static absl::StatusOr<std::unique_ptr<Preparer>> Create(const PrepareConfig& config,
                                                          Device& device);
  /// The bytes of device memory that Create would take, without input and output. InvalidArgument
  /// as Create.
  static absl::StatusOr<int64_t> DeviceBytes(const PrepareConfig& config, Device& device);

  virtual ~Preparer() = default;
  virtual const PreparedShape& shape() const = 0;
  /// Enqueues everything. It synchronises only to call input.goes_on, and returns Cancelled if that
  /// returned false. `sinograms`: device f32 [slice, angle, detector] of shape(), not overlapping
  /// the input; all must live until `stream` has passed. One run at a time.
  virtual absl::Status Run(StreamRef stream, const PrepareInput& input,
                           DeviceSpan<float> sinograms) = 0;
  /// Waits for `stream` and returns the counts of the last run on it.
  virtual absl::StatusOr<PrepareCounts> Counts(StreamRef stream) = 0;
};

}  // namespace octavo::inline gpu
