#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device_span.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/device/stream.h"
#include "gpu/math/flat_weights.h"
#include "gpu/math/prepare.h"
#include "gpu/math/raw.h"
#include "gpu/math/turning.h"

// The operators of preprocessing and of the search for the axis. All pointers are device memory,
// and every call only enqueues.
namespace octavo::inline gpu {

/// One pixel of a complex array.
struct ComplexF {
  float re, im;
};

/// Frames [frame, row, column]. Frames and rows are strides apart; columns are neighbours.
struct FrameSpec {
  DType dtype = DType::kF32;  // u8, u16, i16, f32
  int64_t frames = 0, rows = 0, columns = 0;
  int64_t frame_stride = 0, row_stride = 0;  // elements
  OCTAVO_HOST_DEVICE int64_t At(int64_t frame, int64_t row, int64_t column) const {
    return frame * frame_stride + row * row_stride + column;
  }
};

/// Rows of packed counts, each from a byte on. Frames and rows are strides apart.
struct UnpackSpec {
  math::Packing packing = math::Packing::kLowFirst12;
  int64_t frames = 0, rows = 0, columns = 0;
  int64_t frame_stride = 0, row_stride = 0;                               // bytes
  OCTAVO_HOST_DEVICE int64_t pairs() const { return (columns + 1) / 2; }  // of a row
};

struct OutlierSpec {
  FrameSpec in;
  int64_t window = 3;
  float difference = 0;
  bool dark_too = false;
};

/// A position between two series of flat fields.
struct FlatAt {
  int32_t series = 0;  // the earlier series
  float weight = 0;    // the weight of the next series
};

struct CorrectSpec {
  FrameSpec in;  // a frame is a raw projection; the first one of this call
  int64_t first_row = 0, first_column = 0, bin_rows = 1, bin_columns = 1, bin_angles = 1;
  int64_t angles = 0, rows = 0, columns = 0;         // the result
  int64_t out_angle_stride = 0, out_row_stride = 0;  // elements
  const float* dark = nullptr;                       // [row, column] of the frame, or null
  const float* flats = nullptr;     // [series, row, column], or null: no division by flat fields
  const FlatAt* flat_at = nullptr;  // [raw projection of this call]; null: the only series
  /// Components of the flat fields [component, row, column] that are added to the only series, by
  /// the weights [raw projection of this call, component].
  int64_t components = 0;
  const float *flat_parts = nullptr, *flat_weights = nullptr;
  float denominator_floor = 0, cutoff = 0;  // cutoff: infinite = none
  bool finish = false;
  math::Finishing finishing;
};

/// Rows [angle, row, column] with arbitrary strides.
struct RowsSpec {
  int64_t angles = 0, rows = 0, columns = 0;
  int64_t angle_stride = 0, row_stride = 0;
  OCTAVO_HOST_DEVICE int64_t At(int64_t angle, int64_t row, int64_t column) const {
    return angle * angle_stride + row * row_stride + column;
  }
};

struct FinishSpec {
  RowsSpec in, out;  // of the same extent
  int64_t air_left = 0, air_right = 0;
  const float* air = nullptr;  // [angle, row, 2] of AirLevels, or null
  math::Finishing finishing;
};

struct PaddedSpec {
  int64_t frames = 0, rows = 0, columns = 0;    // packed
  int64_t padded_rows = 0, padded_columns = 0;  // of the complex array
  int64_t before_rows = 0, before_columns = 0;  // the position of the frame in it
};

/// Frames [frame, in_rows, in_columns] that are turned and shifted, and the result [frame, rows,
/// columns]: the means of bins, from the pixel (first_row, first_column) of the frame on. Both are
/// packed.
struct TurnSpec {
  math::DetectorTurn turn;
  int64_t frames = 0, in_rows = 0, in_columns = 0;
  int64_t detector_row = 0;  // the row of the detector that comes first in a frame
  int64_t rows = 0, columns = 0, first_row = 0, first_column = 0, bin_rows = 1, bin_columns = 1;
  const double* shifts =
      nullptr;  // [frame]: rows that the turned frame is moved up by; null = none
};

struct StitchSpec {
  int64_t slices = 0, angles = 0, columns = 0;  // the input
  int64_t half_turn = 0, width = 0;             // the result: [slice, half_turn, width]
  double overlap = 0;
  bool right = false;
};

/// Operator family of projections.
class PrepareOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"preparation of projections"};

  /// out u16 [frame, row, column], packed: the counts. `out` begins at a multiple of four bytes.
  virtual absl::Status Unpack(StreamRef stream, const UnpackSpec& spec, const void* frames,
                              DeviceSpan<uint16_t> out) = 0;
  /// out f32 [row, column], packed: the mean or median over frames.
  virtual absl::Status Field(StreamRef stream, const FrameSpec& in, bool median, const void* frames,
                             DeviceSpan<float> out) = 0;
  /// out f32 [row, column], packed: Σ frame · mixture[frame · stride], in double precision.
  virtual absl::Status MixField(StreamRef stream, const FrameSpec& in, const void* frames,
                                const double* mixture, int64_t stride, DeviceSpan<float> out) = 0;
  /// weights f64 [frame, component]: math::FindFlatWeights for each of the `frames`, counts of the
  /// sample's pixels one after the other. 1 ... math::kMostFlatComponents components.
  virtual absl::Status FlatWeights(StreamRef stream, const math::FlatSample& sample, int components,
                                   int64_t frames, DeviceSpan<const float> counts,
                                   DeviceSpan<double> weights) = 0;
  /// out f32 [frame, row, column]: outliers replaced by medians; counts[0] += the number of
  /// outliers.
  virtual absl::Status Outliers(StreamRef stream, const OutlierSpec& spec, const void* frames,
                                DeviceSpan<float> out, DeviceSpan<int64_t> counts) = 0;
  /// Applies flat and dark fields, binning and cutoff, and with spec.finish also the work of
  /// Finish. counts[bit] += the number of pixels with that math::PrepareFlag.
  virtual absl::Status Correct(StreamRef stream, const CorrectSpec& spec, const void* frames,
                               DeviceSpan<float> out, DeviceSpan<int64_t> counts) = 0;
  /// Turns the frames, and bins them.
  virtual absl::Status Turn(StreamRef stream, const TurnSpec& spec, DeviceSpan<const float> in,
                            DeviceSpan<float> out) = 0;
  /// air[angle, row] = the means of the columns at the left and the right end. If one end has no
  /// columns, it gets the mean of the other end.
  virtual absl::Status AirLevels(StreamRef stream, const RowsSpec& in, int64_t left, int64_t right,
                                 DeviceSpan<const float> values, DeviceSpan<float> air) = 0;
  /// Divides by air and finishes. `in` may be `out` if their strides agree.
  virtual absl::Status Finish(StreamRef stream, const FinishSpec& spec, DeviceSpan<const float> in,
                              DeviceSpan<float> out, DeviceSpan<int64_t> counts) = 0;
  /// Copies frames into complex frames and continues their edges. Values that are not finite
  /// become 1.
  virtual absl::Status Pad(StreamRef stream, const PaddedSpec& spec, DeviceSpan<const float> in,
                           DeviceSpan<ComplexF> out) = 0;
  virtual absl::Status Unpad(StreamRef stream, const PaddedSpec& spec,
                             DeviceSpan<const ComplexF> in, DeviceSpan<float> out) = 0;
  /// Multiplies spectra [frame, column frequency, row frequency] by PhaseFactor and `scale`.
  virtual absl::Status FilterPhase(StreamRef stream, const PaddedSpec& spec,
                                   const math::PhaseFilter& filter, float scale,
                                   DeviceSpan<ComplexF> data) = 0;
  virtual absl::Status Stitch(StreamRef stream, const StitchSpec& spec, DeviceSpan<const float> in,
                              DeviceSpan<float> out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<PrepareOps>> MakePrepareOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<PrepareOps>> MakePrepareOps(Device& device);
}

/// Sinograms by columns: f32 [slice, detector, angle].
struct ColumnsSpec {
  int64_t slices = 0, detectors = 0, angles = 0;
  OCTAVO_HOST_DEVICE int64_t columns() const { return slices * detectors; }
  OCTAVO_HOST_DEVICE int64_t elements() const { return columns() * angles; }
};
inline constexpr int64_t kMostSorted = 16384;  // most angles or detectors in one sort

/// One axis of a wavelet transform between arrays [outer, n, inner] and [outer, m, inner], m = (n +
/// taps − 1) / 2.
struct WaveletSpec {
  int64_t outer = 0, n = 0, m = 0, inner = 0;
  int taps = 0;
  float low[16] = {};  // scaling filter
};

struct JoinSpec {
  int64_t count = 0, angles = 0, detectors = 0;
  double first_shift = 0,
         shift_step =
             0;  // candidate k moves the mirrored half by first_shift + k · shift_step to the right
  bool whole = false;  // shifts are whole numbers and wrap around
};

struct HalvesSpec {
  int64_t slices = 0, angles = 0, detectors = 0, slice_stride = 0, angle_stride = 0;
  int64_t half_turn = 0, first_overlap = 0, overlaps = 0;
  bool right = false;
};
inline constexpr int64_t kHalvesSums = 5, kHalvesParts = 32;
inline constexpr int64_t kWedgeParts = 256;

/// Operator family of sinograms: rings and centre finding.
class SinogramOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"sinograms"};

  /// [batch, rows, columns] → [batch, columns, rows].
  virtual absl::Status Transpose(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                                 DeviceSpan<const float> in, DeviceSpan<float> out) = 0;
  virtual absl::Status Transpose(StreamRef stream, int64_t batch, int64_t rows, int64_t columns,
                                 DeviceSpan<const ComplexF> in, DeviceSpan<ComplexF> out) = 0;

  /// Sorts each column's values in ascending order, and writes the angle of each value to `order`
  /// (equal values: the smaller angle first). At most kMostSorted angles.
  virtual absl::Status SortColumns(StreamRef stream, const ColumnsSpec& spec,
                                   DeviceSpan<const float> in, DeviceSpan<float> sorted,
                                   DeviceSpan<int32_t> order) = 0;
  /// out[s, d, a] = median of in[s, d − window/2 … d + window/2, a], edges mirrored.
  virtual absl::Status MedianOverDetectors(StreamRef stream, const ColumnsSpec& spec,
                                           int64_t window, DeviceSpan<const float> in,
                                           DeviceSpan<float> out) = 0;
  /// factors[s, d] = the mean of a column of `sorted` divided by that of `smooth`, without `drop`
  /// values at either end; 1 if the divisor is 0.
  virtual absl::Status MeanRatios(StreamRef stream, const ColumnsSpec& spec, int64_t drop,
                                  DeviceSpan<const float> sorted, DeviceSpan<const float> smooth,
                                  DeviceSpan<double> factors) = 0;
  /// factors[s, d] = Σ |x − mean of ten| of a column divided by the median of this sum over
  /// `window` columns around it; `sums` is scratch.
  virtual absl::Status RoughnessRatios(StreamRef stream, const ColumnsSpec& spec, int64_t window,
                                       DeviceSpan<const float> in, DeviceSpan<double> sums,
                                       DeviceSpan<double> factors) = 0;
  /// mask[s, d] = 1 for stripes (math::FindStripes) and their neighbours. With `keep_ends` the two
  /// columns at either end are never marked. At most kMostSorted detectors.
  virtual absl::Status MarkStripes(StreamRef stream, const ColumnsSpec& spec, double snr,
                                   bool keep_ends, DeviceSpan<const double> factors,
                                   DeviceSpan<uint8_t> mask) = 0;
  /// Marked columns (null mask: all) get the values of `smooth`, in the order of `order`. The
  /// others are divided by their factors if these are given and above 0.
  virtual absl::Status Unsort(StreamRef stream, const ColumnsSpec& spec,
                              DeviceSpan<const float> smooth, DeviceSpan<const int32_t> order,
                              DeviceSpan<const uint8_t> mask, DeviceSpan<const double> factors,
                              DeviceSpan<float> out) = 0;
  /// Replaces marked columns by linear interpolation between the nearest unmarked ones.
  virtual absl::Status FillColumns(StreamRef stream, const ColumnsSpec& spec,
                                   DeviceSpan<const uint8_t> mask, DeviceSpan<float> data) = 0;

  /// out[:, i, :] = Σ filter[j] x[:, 2i + 1 − j, :], edges mirrored. The filter is the wavelet if
  /// `high`, otherwise the scaling filter.
  virtual absl::Status Analyze(StreamRef stream, const WaveletSpec& spec, bool high,
                               DeviceSpan<const float> in, DeviceSpan<float> out) = 0;
  /// Computes the n values from the low and high coefficients; null means zeros.
  virtual absl::Status Synthesize(StreamRef stream, const WaveletSpec& spec,
                                  DeviceSpan<const float> low, DeviceSpan<const float> high,
                                  DeviceSpan<float> out) = 0;
  /// Pads rows with zeros, [rows, n] → [rows, padded]; the row begins at `before`.
  virtual absl::Status PadRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                               int64_t before, DeviceSpan<const float> in,
                               DeviceSpan<float> out) = 0;
  /// Subtracts the unpadded part of each row of `in`, which begins at `before`, from data.
  virtual absl::Status SubtractRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                                    int64_t before, DeviceSpan<const float> in,
                                    DeviceSpan<float> data) = 0;
  virtual absl::Status ToComplex(StreamRef stream, int64_t count, DeviceSpan<const float> in,
                                 DeviceSpan<ComplexF> out) = 0;
  virtual absl::Status RealPart(StreamRef stream, int64_t count, DeviceSpan<const ComplexF> in,
                                DeviceSpan<float> out) = 0;
  /// Multiplies spectra of rows of n by StripePart / n.
  virtual absl::Status KeepStripes(StreamRef stream, int64_t rows, int64_t n, float sigma,
                                   DeviceSpan<ComplexF> data) = 0;

  /// out [candidate, 2 angles, detector]: the sinogram and, below it, its shifted mirror image.
  /// Pixels that the shift leaves empty get the sinogram upside down. `mirror`: the mirrored
  /// sinogram itself (whole) or its B-spline coefficients.
  virtual absl::Status Join(StreamRef stream, const JoinSpec& spec,
                            DeviceSpan<const float> sinogram, DeviceSpan<const float> mirror,
                            DeviceSpan<ComplexF> out) = 0;
  /// sums[candidate, part] = Σ |x| outside the double wedge, for spectra [candidate, column
  /// frequency, row frequency].
  virtual absl::Status WedgeSums(StreamRef stream, int64_t count, int64_t rows, int64_t columns,
                                 double slope, int64_t drop, DeviceSpan<const ComplexF> data,
                                 DeviceSpan<double> sums) = 0;
  /// sums[overlap, part] = {Σ a, Σ b, Σ a², Σ b², Σ a b} over the columns that both halves of a
  /// full turn see.
  virtual absl::Status HalvesSums(StreamRef stream, const HalvesSpec& spec,
                                  DeviceSpan<const float> data, DeviceSpan<double> sums) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<SinogramOps>> MakeSinogramOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<SinogramOps>> MakeSinogramOps(Device& device);
}

}  // namespace octavo::inline gpu
