#pragma once

// Private to the twins of PrepareOps and SinogramOps: the work on one element that both twins do in
// the same way. A twin only loops over the elements. Pointers are device memory.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gpu/device/dtype_dispatch.h"
#include "gpu/math/indices.h"
#include "gpu/math/prepare.h"
#include "gpu/tomography/preprocess_ops.h"

namespace octavo::inline gpu {

// -- projections

/// Calls f with a value of the type of raw projections and fields: u8, u16, i16, else f32.
template <typename F>
void DispatchCountType(DType dtype, F f) {
  if (dtype == DType::kI16) {
    f(int16_t{});
  } else {
    DispatchIntensityType(dtype, f);
  }
}

/// Calls f with std::integral_constant<int, components>, 1 ... math::kMostFlatComponents.
template <int K = 1, typename F>
void DispatchComponents(int components, F f) {
  if constexpr (K < math::kMostFlatComponents) {
    if (components > K) return DispatchComponents<K + 1>(components, f);
  }
  f(std::integral_constant<int, K>{});
}

/// Counts of the open beam above the dark field, or the floor if they are below it.
OCTAVO_HOST_DEVICE inline float FlooredBeam(const CorrectSpec& s, float light, uint32_t* flags) {
  if (light < s.denominator_floor) {  // NaN stays
    *flags |= math::kFlagUnlit;
    light = s.denominator_floor;
  }
  return light;
}
/// The open beam's counts above `dark` at a pixel of the detector behind projection `angle`, or the
/// floor if they are below it; 1 without flat fields.
OCTAVO_HOST_DEVICE inline float OpenBeam(const CorrectSpec& s, const FlatAt& at, int64_t angle,
                                         int64_t pixel, float dark, uint32_t* flags) {
  if (s.flats == nullptr) return 1.0f;
  const int64_t field = s.in.rows * s.in.columns;
  const float* flat = s.flats + at.series * field + pixel;
  float light = flat[0];
  if (at.weight > 0.0f) light += at.weight * (flat[field] - light);
  for (int64_t k = 0; k < s.components; ++k)
    light += s.flat_weights[angle * s.components + k] * s.flat_parts[k * field + pixel];
  return FlooredBeam(s, light - dark, flags);
}

/// Adds a raw pixel's counts above the dark field, and those of the open beam.
template <class T>
OCTAVO_HOST_DEVICE void AddPixel(const CorrectSpec& s, const T* frames, int64_t angle, int64_t row,
                                 int64_t column, float* counts, float* open, uint32_t* flags) {
  const int64_t pixel = row * s.in.columns + column;
  const float dark = s.dark == nullptr ? 0.0f : s.dark[pixel];
  *counts += static_cast<float>(frames[s.in.At(angle, row, column)]) - dark;
  *open +=
      OpenBeam(s, s.flat_at == nullptr ? FlatAt{} : s.flat_at[angle], angle, pixel, dark, flags);
}

/// counts / open, cut off. The open beam comes as its inverse, because many projections share it.
OCTAVO_HOST_DEVICE inline float Transmission(const CorrectSpec& s, float counts, float open_inverse,
                                             uint32_t* flags) {
  const float transmission = counts * open_inverse;
  const bool cut = transmission > s.cutoff;
  *flags |= cut ? math::kFlagCut : 0u;
  return cut ? s.cutoff : transmission;
}
/// Whether Correct makes line integrals and nothing else of transmissions.
OCTAVO_HOST_DEVICE inline bool MakesLineIntegrals(const CorrectSpec& s) {
  return s.finish && s.finishing.minus_log && s.finishing.hardening_terms == 0;
}
/// The transmission, finished if the spec says so.
OCTAVO_HOST_DEVICE inline float CorrectedPixel(const CorrectSpec& s, float counts,
                                               float open_inverse, uint32_t* flags) {
  const float transmission = Transmission(s, counts, open_inverse, flags);
  return s.finish ? math::Finished(s.finishing, transmission, flags) : transmission;
}

/// Output pixel (angle, row, column): the Transmission of the sums over what is binned.
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
  return CorrectedPixel(s, counts, 1.0f / open, flags);
}

/// Pixel (row, column) of a turned, shifted and binned frame.
OCTAVO_HOST_DEVICE inline float Turned(const TurnSpec& s, const float* frame, double shift,
                                       int64_t row, int64_t column) {
  float sum = 0;
  for (int64_t r = s.first_row + row * s.bin_rows; r < s.first_row + (row + 1) * s.bin_rows; ++r) {
    for (int64_t c = s.first_column + column * s.bin_columns;
         c < s.first_column + (column + 1) * s.bin_columns; ++c) {
      sum += math::ValueAt(
          frame, s.in_rows, s.in_columns, s.detector_row,
          math::PlaceBefore(s.turn, static_cast<double>(s.detector_row + r) + shift, c));
    }
  }
  return sum / static_cast<float>(s.bin_rows * s.bin_columns);
}

/// The means of the columns at both ends of a row. If one end has no columns, it gets the mean of
/// the other end.
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
/// Pixel `column` of row `i`, counted over all angles, divided by air and finished.
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

// -- sinograms

OCTAVO_HOST_DEVICE inline double RatioOrOne(double a, double b) { return b != 0 ? a / b : 1; }
OCTAVO_HOST_DEVICE inline uint8_t MarkedColumn(const math::StripeLimits& limits, const double* list,
                                               int64_t n, bool keep_ends, int64_t d) {
  if (keep_ends && (d < 2 || d >= n - 2)) return 0;
  return limits.IsStripe(list[d]) || (d > 0 && limits.IsStripe(list[d - 1])) ||
                 (d + 1 < n && limits.IsStripe(list[d + 1]))
             ? 1
             : 0;
}
OCTAVO_HOST_DEVICE inline void FillColumn(const ColumnsSpec& s, const uint8_t* mask, int64_t column,
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

/// The value of candidate k at (row, column) of the joined sinogram, which has twice the angles.
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

/// Adds to `sums` the contribution of row a of the half turn of a slice at `overlap`, over every
/// `step`-th column from `first` on.
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
// -- function objects: f(row, column) computes one element of the operator of the same name

/// Pair of neighbouring pixels `pair` of row i = frame × spec.rows + row; the last one of an odd
/// number of columns has one pixel.
template <math::Packing kPacking>
struct UnpackPair {
  UnpackSpec spec;
  const uint8_t* frames;
  uint16_t* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t pair) const {
    const uint8_t* row =
        frames + i / spec.rows * spec.frame_stride + i % spec.rows * spec.row_stride;
    uint16_t* to = out + i * spec.columns + 2 * pair;
    const auto first = static_cast<uint16_t>(math::ReadPacked12(kPacking, row, 2 * pair));
    if (2 * pair + 1 == spec.columns) {
      *to = first;
      return;
    }
    const auto second = static_cast<uint16_t>(math::ReadPacked12(kPacking, row, 2 * pair + 1));
    if (spec.columns % 2 == 0) {  // then each pair begins where both are stored as one
      struct alignas(4) Two {
        uint16_t at[2];
      };
      *reinterpret_cast<Two*>(to) = Two{{first, second}};
    } else {
      to[0] = first;
      to[1] = second;
    }
  }
};

/// Calls f with the UnpackPair of the spec's packing.
template <typename F>
void DispatchUnpack(const UnpackSpec& spec, const void* frames, uint16_t* out, F f) {
  const auto* in = static_cast<const uint8_t*>(frames);
  if (spec.packing == math::Packing::kLowFirst12) {
    f(UnpackPair<math::Packing::kLowFirst12>{spec, in, out});
  } else {
    f(UnpackPair<math::Packing::kHighFirst12>{spec, in, out});
  }
}

template <class T>
struct FieldPixel {
  FrameSpec in;
  bool median;
  const T* values;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    out[row * in.columns + column] = math::FieldValue(in.frames, median, [&](int64_t i) {
      return static_cast<float>(values[in.At(i, row, column)]);
    });
  }
};

template <class T>
struct MixPixel {
  FrameSpec in;
  const double* mixture;
  int64_t stride;
  const T* values;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    out[row * in.columns + column] = math::MixedValue(in.frames, mixture, stride, [&](int64_t i) {
      return static_cast<float>(values[in.At(i, row, column)]);
    });
  }
};

/// Returns math::PrepareFlag bits. Row i = angle × spec.rows + row.
template <class T>
struct CorrectPixel {
  CorrectSpec spec;
  const T* values;
  float* out;
  OCTAVO_HOST_DEVICE uint32_t operator()(int64_t i, int64_t column) const {
    const int64_t angle = i / spec.rows, row = i % spec.rows;
    uint32_t flags = 0;
    out[angle * spec.out_angle_stride + row * spec.out_row_stride + column] =
        Corrected(spec, values, angle, row, column, &flags);
    return flags;
  }
};

/// Row i = frame × spec.rows + row.
struct TurnPixel {
  TurnSpec spec;
  const float* in;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t column) const {
    const int64_t frame = i / spec.rows;
    out[i * spec.columns + column] =
        Turned(spec, in + frame * spec.in_rows * spec.in_columns,
               spec.shifts == nullptr ? 0.0 : spec.shifts[frame], i % spec.rows, column);
  }
};

/// One row of AirLevels; the column is unused.
struct AirRow {
  RowsSpec in;
  int64_t left, right;
  const float* values;
  float* air;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t) const {
    AirOfRow(values + in.At(i / in.rows, i % in.rows, 0), in.columns, left, right, air + 2 * i);
  }
};

/// Returns math::PrepareFlag bits.
struct FinishPixel {
  FinishSpec spec;
  const float* in;
  float* out;
  OCTAVO_HOST_DEVICE uint32_t operator()(int64_t i, int64_t column) const {
    const int64_t angle = i / spec.in.rows, row = i % spec.in.rows;
    uint32_t flags = 0;
    out[spec.out.At(angle, row, column)] =
        FinishedPixel(spec, in[spec.in.At(angle, row, column)], i, column, &flags);
    return flags;
  }
};

struct PadPixel {
  PaddedSpec spec;
  const float* in;
  ComplexF* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    out[row * spec.padded_columns + column] = PaddedPixel(spec, in, row, column);
  }
};

struct UnpadPixel {
  PaddedSpec spec;
  const ComplexF* in;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    out[row * spec.columns + column] = UnpaddedPixel(spec, in, row, column);
  }
};

/// Row i = frame × spec.padded_columns + column frequency; column v = row frequency.
struct FilterPhasePixel {
  PaddedSpec spec;
  math::PhaseFilter filter;
  float scale;
  ComplexF* data;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t v) const {
    const float factor = scale * math::PhaseFactor(filter, v, spec.padded_rows,
                                                   i % spec.padded_columns, spec.padded_columns);
    data[i * spec.padded_rows + v].re *= factor;
    data[i * spec.padded_rows + v].im *= factor;
  }
};

/// Row i = slice × spec.half_turn + angle.
struct StitchPixel {
  StitchSpec spec;
  const float* in;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t y) const {
    const float* near = in + (i / spec.half_turn * spec.angles + i % spec.half_turn) * spec.columns;
    out[i * spec.width + y] =
        math::StitchedPixel(near, near + spec.half_turn * spec.columns, spec.columns, spec.width,
                            spec.overlap, spec.right, y);
  }
};

/// One frame of Outliers.
template <class T>
struct OutlierFrame {
  const OutlierSpec& spec;
  const T* values;
  float* out;
  OCTAVO_HOST_DEVICE OutlierFrame(const OutlierSpec& s, const T* frames, float* result,
                                  int64_t frame)
      : spec(s),
        values(frames + frame * s.in.frame_stride),
        out(result + frame * s.in.rows * s.in.columns) {}
  /// The pixel, edges mirrored.
  OCTAVO_HOST_DEVICE float At(int64_t row, int64_t column) const {
    return static_cast<float>(values[spec.in.At(0, math::Mirrored(row, spec.in.rows),
                                                math::Mirrored(column, spec.in.columns))]);
  }
  OCTAVO_HOST_DEVICE uint32_t KeyAt(int64_t row, int64_t column) const {
    return math::SortKey(At(row, column));
  }
  /// Writes the pixel, or the median of its surroundings (given as a key) where it is an outlier,
  /// and returns whether it is one.
  OCTAVO_HOST_DEVICE bool Write(int64_t row, int64_t column, uint32_t median_key) const {
    const float value = At(row, column), median = math::FromSortKey(median_key);
    const bool odd = math::IsOutlier(value, median, spec.difference, spec.dark_too);
    out[row * spec.in.columns + column] = odd ? median : value;
    return odd;
  }
};

/// The second step of RoughnessRatios: divides a column's sum by the median of the sums around it.
/// Row = slice, column = detector.
struct RoughnessRatio {
  ColumnsSpec spec;
  int64_t window;
  const double* sums;
  double* factors;
  OCTAVO_HOST_DEVICE void operator()(int64_t slice, int64_t d) const {
    const double* list = sums + slice * spec.detectors;
    factors[slice * spec.detectors + d] =
        RatioOrOne(list[d], math::MedianAround(list, spec.detectors, d, window));
  }
};

// For the following two, `column` counts the detector columns of all slices, and `a` the angles.

struct UnsortPixel {
  ColumnsSpec spec;
  const float* smooth;
  const int32_t* order;
  const uint8_t* mask;
  const double* factors;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t column, int64_t a) const {
    const int64_t start = column * spec.angles;
    if (mask == nullptr || mask[column] != 0) {
      out[start + order[start + a]] = smooth[start + a];
    } else if (factors != nullptr && factors[column] > 0) {
      out[start + a] /= static_cast<float>(factors[column]);
    }
  }
};

struct FillPixel {
  ColumnsSpec spec;
  const uint8_t* mask;
  float* data;
  OCTAVO_HOST_DEVICE void operator()(int64_t column, int64_t a) const {
    FillColumn(spec, mask, column, a, data);
  }
};

// The wavelet transform: row i counts outer × the result's extent, column q = inner.

struct AnalyzePixel {
  WaveletSpec spec;
  bool high;
  const float* in;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t q) const {
    out[i * spec.inner + q] =
        math::WaveletAnalysis(spec.low, spec.taps, high, in + i / spec.m * spec.n * spec.inner + q,
                              spec.n, spec.inner, i % spec.m);
  }
};

struct SynthesizePixel {
  WaveletSpec spec;
  const float *low, *high;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t q) const {
    const int64_t start = i / spec.n * spec.m * spec.inner + q;
    out[i * spec.inner + q] = math::WaveletSynthesis(
        spec.low, spec.taps, low == nullptr ? nullptr : low + start,
        high == nullptr ? nullptr : high + start, spec.m, spec.inner, i % spec.n);
  }
};

// Rows of n numbers, and padded rows.

struct PadRowPixel {
  int64_t n, padded, before;
  const float* in;
  float* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t i) const {
    out[row * padded + i] = math::PaddedValue(in + row * n, n, before, i);
  }
};

struct SubtractRowPixel {
  int64_t n, padded, before;
  const float* in;
  float* data;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t i) const {
    data[row * n + i] -= in[row * padded + before + i];
  }
};

struct KeepStripesPixel {
  int64_t n;
  float sigma;
  ComplexF* data;
  OCTAVO_HOST_DEVICE void operator()(int64_t row, int64_t k) const {
    const float factor = math::StripePart(k, n, sigma) / static_cast<float>(n);
    data[row * n + k].re *= factor;
    data[row * n + k].im *= factor;
  }
};

/// Row i = candidate × 2 angles + angle.
struct JoinPixel {
  JoinSpec spec;
  const float *sinogram, *mirror;
  ComplexF* out;
  OCTAVO_HOST_DEVICE void operator()(int64_t i, int64_t column) const {
    out[i * spec.detectors + column] = {
        Merge(spec, sinogram, mirror, i / (2 * spec.angles), i % (2 * spec.angles), column), 0.0f};
  }
};

}  // namespace octavo::inline gpu
