#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device_span.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/device/stream.h"
#include "gpu/math/prepare.h"

// The operators that preprocessing and centre finding launch. All pointers are device memory; every
// call only enqueues.
namespace octavo::inline gpu {

/// One pixel of a complex array.
struct ComplexF {
  float re, im;
};

/// Frames of which rows and frames are strides apart, columns neighbours.
struct FrameSpec {
  DType dtype = DType::kF32;  // u8, u16, f32
  int64_t frames = 0, rows = 0, columns = 0;
  int64_t frame_stride = 0, row_stride = 0;  // elements
};

struct OutlierSpec {
  FrameSpec in;
  int64_t window = 3;
  float difference = 0;
  bool dark_too = false;
};

/// Between two flat fields.
struct FlatAt {
  int32_t series = 0;  // the earlier one
  float weight = 0;    // of the next one
};

struct CorrectSpec {
  FrameSpec in;  // frame = raw projection; the first of this call
  int64_t first_row = 0, first_column = 0, bin_rows = 1, bin_columns = 1, bin_angles = 1;
  int64_t angles = 0, rows = 0, columns = 0;         // what comes out
  int64_t out_angle_stride = 0, out_row_stride = 0;  // elements
  const float* dark = nullptr;                       // [row, column] of the frame, or null
  const float* flats = nullptr;             // [series, row, column], or null: nothing is divided by
  const FlatAt* flat_at = nullptr;          // [raw projection of this call]; null: the one flat
  float denominator_floor = 0, cutoff = 0;  // cutoff: infinite = none
  bool finish = false;
  math::Finishing finishing;
};

/// Adds a raw pixel's counts above the dark field, and the open beam's counts at that pixel, or the
/// floor if they are below it.
template <class T>
OCTAVO_HOST_DEVICE void AddPixel(const CorrectSpec& s, const T* frames, int64_t angle, int64_t row,
                                 int64_t column, float* counts, float* open, uint32_t* flags) {
  const int64_t field = s.in.rows * s.in.columns, pixel = row * s.in.columns + column;
  const float dark = s.dark == nullptr ? 0.0f : s.dark[pixel];
  *counts +=
      static_cast<float>(frames[angle * s.in.frame_stride + row * s.in.row_stride + column]) - dark;
  if (s.flats == nullptr) {
    *open += 1.0f;
    return;
  }
  const FlatAt at = s.flat_at == nullptr ? FlatAt{} : s.flat_at[angle];
  const float* flat = s.flats + at.series * field + pixel;
  float light = flat[0];
  if (at.weight > 0.0f) light += at.weight * (flat[field] - light);
  light -= dark;
  if (light < s.denominator_floor) {  // NaN stays
    *flags |= math::kFlagUnlit;
    light = s.denominator_floor;
  }
  *open += light;
}

/// Transmission of output pixel (angle, row, column): sums of counts over sums of fields, cut off,
/// perhaps finished.
template <class T>
OCTAVO_HOST_DEVICE float Corrected(const CorrectSpec& s, const T* frames, int64_t angle,
                                   int64_t row, int64_t column, uint32_t* flags) {
  float counts = 0, open = 0;
  if (s.bin_angles == 1 && s.bin_rows == 1 && s.bin_columns == 1) {
    AddPixel(s, frames, angle, s.first_row + row, s.first_column + column, &counts, &open, flags);
  } else {
    for (int64_t a = angle * s.bin_angles; a < (angle + 1) * s.bin_angles; ++a) {
      for (int64_t r = s.first_row + row * s.bin_rows; r < s.first_row + (row + 1) * s.bin_rows;
           ++r) {
        for (int64_t c = s.first_column + column * s.bin_columns;
             c < s.first_column + (column + 1) * s.bin_columns; ++c) {
          AddPixel(s, frames, a, r, c, &counts, &open, flags);
        }
      }
    }
  }
  float transmission = counts / open;
  if (transmission > s.cutoff) {
    *flags |= math::kFlagCut;
    transmission = s.cutoff;
  }
  return s.finish ? math::Finished(s.finishing, transmission, flags) : transmission;
}

/// Rows [angle, row, column] with any strides.
struct RowsSpec {
  int64_t angles = 0, rows = 0, columns = 0;
  int64_t angle_stride = 0, row_stride = 0;
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
  int64_t before_rows = 0, before_columns = 0;  // where the frame begins in it
};

/// Mean of the columns at both ends of a row; where there are none at one end, the other's.
OCTAVO_HOST_DEVICE inline void AirOfRow(const float* row, int64_t columns, int64_t left,
                                        int64_t right, float air[2]) {
  double sums[2] = {0, 0};
  for (int64_t c = 0; c < left; ++c) sums[0] += static_cast<double>(row[c]);
  for (int64_t c = columns - right; c < columns; ++c) sums[1] += static_cast<double>(row[c]);
  air[0] = static_cast<float>(left > 0 ? sums[0] / static_cast<double>(left)
                                       : sums[1] / static_cast<double>(right));
  air[1] = static_cast<float>(right > 0 ? sums[1] / static_cast<double>(right)
                                        : sums[0] / static_cast<double>(left));
}
/// Pixel `column` of row `i` (of all angles and rows), divided by air and finished.
OCTAVO_HOST_DEVICE inline float FinishedPixel(const FinishSpec& s, float value, int64_t i,
                                              int64_t column, uint32_t* flags) {
  if (s.air != nullptr) {
    const float part =
        static_cast<float>(column) / static_cast<float>(s.in.columns > 1 ? s.in.columns - 1 : 1);
    value /= s.air[2 * i] + part * (s.air[2 * i + 1] - s.air[2 * i]);
  }
  return math::Finished(s.finishing, value, flags);
}
OCTAVO_HOST_DEVICE inline ComplexF PaddedPixel(const PaddedSpec& s, const float* in, int64_t i,
                                               int64_t column) {
  int64_t r = i % s.padded_rows - s.before_rows, c = column - s.before_columns;
  r = r < 0 ? 0 : r >= s.rows ? s.rows - 1 : r;
  c = c < 0 ? 0 : c >= s.columns ? s.columns - 1 : c;
  const float value = in[(i / s.padded_rows * s.rows + r) * s.columns + c];
  return {math::IsFinite(value) ? value : 1.0f, 0.0f};
}
OCTAVO_HOST_DEVICE inline float UnpaddedPixel(const PaddedSpec& s, const ComplexF* in, int64_t i,
                                              int64_t column) {
  return in[(i / s.rows * s.padded_rows + i % s.rows + s.before_rows) * s.padded_columns + column +
            s.before_columns]
      .re;
}

struct StitchSpec {
  int64_t slices = 0, angles = 0, columns = 0;  // what comes in
  int64_t half_turn = 0, width = 0;             // what comes out: [slice, half_turn, width]
  double overlap = 0;
  bool right = false;
};

/// Operator family of projections.
class PrepareOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"preparation of projections"};

  /// out f32 [row, column]: mean or median over frames (packed).
  virtual absl::Status Field(StreamRef stream, const FrameSpec& in, bool median, const void* frames,
                             DeviceSpan<float> out) = 0;
  /// out f32 [frame, row, column]: outliers replaced by medians; counts[0] += how many.
  virtual absl::Status Outliers(StreamRef stream, const OutlierSpec& spec, const void* frames,
                                DeviceSpan<float> out, DeviceSpan<int64_t> counts) = 0;
  /// Flat and dark fields, binning, cutoff, and with spec.finish also what Finish does.
  /// counts[kPrepareFlags] += what was met.
  virtual absl::Status Correct(StreamRef stream, const CorrectSpec& spec, const void* frames,
                               DeviceSpan<float> out, DeviceSpan<int64_t> counts) = 0;
  /// air[angle, row] = mean of the columns at the left and the right end (the other's where there
  /// are none).
  virtual absl::Status AirLevels(StreamRef stream, const RowsSpec& in, int64_t left, int64_t right,
                                 DeviceSpan<const float> values, DeviceSpan<float> air) = 0;
  /// Divides by air and finishes. in may be out where their strides agree.
  virtual absl::Status Finish(StreamRef stream, const FinishSpec& spec, DeviceSpan<const float> in,
                              DeviceSpan<float> out, DeviceSpan<int64_t> counts) = 0;
  /// Frames into complex ones, edges going on; what is not finite becomes 1.
  virtual absl::Status Pad(StreamRef stream, const PaddedSpec& spec, DeviceSpan<const float> in,
                           DeviceSpan<ComplexF> out) = 0;
  virtual absl::Status Unpad(StreamRef stream, const PaddedSpec& spec,
                             DeviceSpan<const ComplexF> in, DeviceSpan<float> out) = 0;
  /// Spectra [frame, column frequency, row frequency] times PhaseFactor and `scale`.
  virtual absl::Status FilterPhase(StreamRef stream, const PaddedSpec& spec, float scale_rows,
                                   float scale_columns, float scale, DeviceSpan<ComplexF> data) = 0;
  virtual absl::Status Stitch(StreamRef stream, const StitchSpec& spec, DeviceSpan<const float> in,
                              DeviceSpan<float> out) = 0;
};
// Its twins; gpu/backend makes one for each device that it opens. InvalidArgument if the device is
// of another backend.
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
inline constexpr int64_t kMostSorted = 16384;  // angles or detectors that are sorted at once

OCTAVO_HOST_DEVICE inline double RatioOrOne(double a, double b) { return b != 0 ? a / b : 1; }
OCTAVO_HOST_DEVICE inline uint8_t MarkedColumn(const math::StripeLimits& limits, const double* list,
                                               int64_t n, bool keep_ends, int64_t d) {
  if (keep_ends && (d < 2 || d >= n - 2)) return 0;
  return limits.IsStripe(list[d]) || (d > 0 && limits.IsStripe(list[d - 1])) ||
                 (d + 1 < n && limits.IsStripe(list[d + 1]))
             ? 1
             : 0;
}
OCTAVO_HOST_DEVICE inline void FillPixel(const ColumnsSpec& s, const uint8_t* mask, int64_t column,
                                         int64_t a, float* data) {
  if (mask[column] == 0) return;
  const int64_t first = column / s.detectors * s.detectors, last = first + s.detectors - 1;
  int64_t left = column, right = column;
  while (left > first && mask[left] != 0) --left;
  while (right < last && mask[right] != 0) ++right;
  const bool no_left = mask[left] != 0, no_right = mask[right] != 0;
  if (no_left && no_right) return;
  if (no_left) left = right;
  if (no_right) right = left;
  const float part =
      left == right ? 0.0f : static_cast<float>(column - left) / static_cast<float>(right - left);
  const float v = data[left * s.angles + a], w = data[right * s.angles + a];
  data[column * s.angles + a] = v + part * (w - v);
}

/// One axis of a wavelet transform: arrays [outer, n, inner] on one side, [outer, m, inner] on the
/// other, m = (n + taps − 1) / 2.
struct WaveletSpec {
  int64_t outer = 0, n = 0, m = 0, inner = 0;
  int taps = 0;
  float low[16] = {};  // scaling filter
};

struct JoinSpec {
  int64_t count = 0, angles = 0, detectors = 0;
  double first_shift = 0, shift_step = 0;  // of candidate k: first_shift + k · shift_step, moving
                                           // the mirrored half to the right
  bool whole = false;                      // shifts are whole numbers and wrap around
};

/// Value of candidate k at (row, column) of the joined sinogram of twice the angles.
OCTAVO_HOST_DEVICE inline float Merge(const JoinSpec& s, const float* sinogram, const float* mirror,
                                      int64_t k, int64_t row, int64_t column) {
  const int64_t n = s.detectors;
  if (row < s.angles) return sinogram[row * n + column];
  row -= s.angles;
  const double shift = s.first_shift + static_cast<double>(k) * s.shift_step;
  const bool vacant = shift >= 0
                          ? static_cast<double>(column) < ceil(shift)
                          : static_cast<double>(column) >= static_cast<double>(n) + floor(shift);
  if (vacant) return sinogram[(s.angles - 1 - row) * n + column];
  if (s.whole) return mirror[row * n + column - static_cast<int64_t>(shift)];
  return math::SplineValue(mirror + row * n, n, static_cast<double>(column) - shift);
}

struct HalvesSpec {
  int64_t slices = 0, angles = 0, detectors = 0, slice_stride = 0, angle_stride = 0;
  int64_t half_turn = 0, first_overlap = 0, overlaps = 0;
  bool right = false;
};
/// Adds to sums the contribution of row a of half_turn of a slice at `overlap`, over the columns
/// from `first` on, `step` apart.
OCTAVO_HOST_DEVICE inline void AddHalves(const HalvesSpec& s, const float* data, int64_t slice,
                                         int64_t a, int64_t overlap, int64_t first, int64_t step,
                                         double* sums) {
  const float* row = data + slice * s.slice_stride + a * s.angle_stride;
  const float* opposite = row + s.half_turn * s.angle_stride;
  for (int64_t x = first; x < overlap; x += step) {
    const int64_t mirror = overlap - 1 - x;
    const auto v = static_cast<double>(row[s.right ? s.detectors - 1 - x : x]);
    const auto w = static_cast<double>(opposite[s.right ? s.detectors - 1 - mirror : mirror]);
    sums[0] += v;
    sums[1] += w;
    sums[2] += v * v;
    sums[3] += w * w;
    sums[4] += v * w;
  }
}
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

  /// Each column's values in rising order, and the angle each came from (ties: the first angle
  /// first). At most kMostSorted angles.
  virtual absl::Status SortColumns(StreamRef stream, const ColumnsSpec& spec,
                                   DeviceSpan<const float> in, DeviceSpan<float> sorted,
                                   DeviceSpan<int32_t> order) = 0;
  /// out[s, d, a] = median of in[s, d − window/2 … d + window/2, a], edges mirrored.
  virtual absl::Status MedianOverDetectors(StreamRef stream, const ColumnsSpec& spec,
                                           int64_t window, DeviceSpan<const float> in,
                                           DeviceSpan<float> out) = 0;
  /// factors[s, d] = mean of a column of `sorted` over that of `smooth`, `drop` values left out at
  /// either end; 1 where that is 0.
  virtual absl::Status MeanRatios(StreamRef stream, const ColumnsSpec& spec, int64_t drop,
                                  DeviceSpan<const float> sorted, DeviceSpan<const float> smooth,
                                  DeviceSpan<double> factors) = 0;
  /// factors[s, d] = Σ |x − mean of ten| of a column over the median of that of `window` columns
  /// around; `sums` is scratch.
  virtual absl::Status RoughnessRatios(StreamRef stream, const ColumnsSpec& spec, int64_t window,
                                       DeviceSpan<const float> in, DeviceSpan<double> sums,
                                       DeviceSpan<double> factors) = 0;
  /// mask[s, d] = 1 for stripes (math::FindStripes) and their neighbours; `keep_ends`: never the
  /// two columns at either end. At most kMostSorted detectors.
  virtual absl::Status MarkStripes(StreamRef stream, const ColumnsSpec& spec, double snr,
                                   bool keep_ends, DeviceSpan<const double> factors,
                                   DeviceSpan<uint8_t> mask) = 0;
  /// Columns that are marked (null mask: all) take the values of `smooth` in their order; the
  /// others are divided by their factors where these are given and above 0.
  virtual absl::Status Unsort(StreamRef stream, const ColumnsSpec& spec,
                              DeviceSpan<const float> smooth, DeviceSpan<const int32_t> order,
                              DeviceSpan<const uint8_t> mask, DeviceSpan<const double> factors,
                              DeviceSpan<float> out) = 0;
  /// Replaces marked columns by linear interpolation between the nearest unmarked ones.
  virtual absl::Status FillColumns(StreamRef stream, const ColumnsSpec& spec,
                                   DeviceSpan<const uint8_t> mask, DeviceSpan<float> data) = 0;

  /// out[:, i, :] = Σ filter x[:, 2i + 1 − j, :], edges mirrored; the scaling filter or the
  /// wavelet.
  virtual absl::Status Analyze(StreamRef stream, const WaveletSpec& spec, bool high,
                               DeviceSpan<const float> in, DeviceSpan<float> out) = 0;
  /// From low and high coefficients, either null for zeros, the n values they came from.
  virtual absl::Status Synthesize(StreamRef stream, const WaveletSpec& spec,
                                  DeviceSpan<const float> low, DeviceSpan<const float> high,
                                  DeviceSpan<float> out) = 0;
  /// out[row] = in[row] between zeros, [rows, n] → [rows, padded] from `before` on.
  virtual absl::Status PadRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                               int64_t before, DeviceSpan<const float> in,
                               DeviceSpan<float> out) = 0;
  /// data[row] −= in[row] from `before` on.
  virtual absl::Status SubtractRows(StreamRef stream, int64_t rows, int64_t n, int64_t padded,
                                    int64_t before, DeviceSpan<const float> in,
                                    DeviceSpan<float> data) = 0;
  virtual absl::Status ToComplex(StreamRef stream, int64_t count, DeviceSpan<const float> in,
                                 DeviceSpan<ComplexF> out) = 0;
  virtual absl::Status RealPart(StreamRef stream, int64_t count, DeviceSpan<const ComplexF> in,
                                DeviceSpan<float> out) = 0;
  /// Spectra of rows of n times StripePart / n.
  virtual absl::Status KeepStripes(StreamRef stream, int64_t rows, int64_t n, float sigma,
                                   DeviceSpan<ComplexF> data) = 0;

  /// out [candidate, 2 angles, detector]: the sinogram and, below, its mirror image moved; where
  /// nothing is moved to, the sinogram upside down. `mirror`: the mirrored sinogram itself (whole)
  /// or its B-spline coefficients.
  virtual absl::Status Join(StreamRef stream, const JoinSpec& spec,
                            DeviceSpan<const float> sinogram, DeviceSpan<const float> mirror,
                            DeviceSpan<ComplexF> out) = 0;
  /// sums[candidate, part] = Σ |x| outside of the double wedge; spectra [candidate, column
  /// frequency, row frequency].
  virtual absl::Status WedgeSums(StreamRef stream, int64_t count, int64_t rows, int64_t columns,
                                 double slope, int64_t drop, DeviceSpan<const ComplexF> data,
                                 DeviceSpan<double> sums) = 0;
  /// sums[overlap, part] = {Σ a, Σ b, Σ a², Σ b², Σ a b} of what both halves of a full turn see.
  virtual absl::Status HalvesSums(StreamRef stream, const HalvesSpec& spec,
                                  DeviceSpan<const float> data, DeviceSpan<double> sums) = 0;
};
// Its twins; gpu/backend makes one for each device that it opens. InvalidArgument if the device is
// of another backend.
namespace host {
absl::StatusOr<std::unique_ptr<SinogramOps>> MakeSinogramOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<SinogramOps>> MakeSinogramOps(Device& device);
}

}  // namespace octavo::inline gpu
