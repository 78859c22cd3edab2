#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gpu/math/finite.h"
#include "gpu/math/host_device.h"
#include "gpu/math/indices.h"

// Per-element functions of the preprocessing of projections and of centre finding, shared by all
// backends.
namespace octavo::inline gpu::math {

/// Bits of a float that sort like the float (NaN at the ends).
OCTAVO_HOST_DEVICE inline uint32_t SortKey(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
OCTAVO_HOST_DEVICE inline float FromSortKey(uint32_t key) {
  const uint32_t bits = (key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
OCTAVO_HOST_DEVICE inline uint64_t SortKey(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}
OCTAVO_HOST_DEVICE inline double FromSortKey(uint64_t key) {
  const uint64_t bits = key >> 63 != 0 ? key & ~(uint64_t{1} << 63) : ~key;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// The index within [0, n) that stands for index `i` if edges are mirrored: cba|abc|cba.
OCTAVO_HOST_DEVICE inline int64_t Mirrored(int64_t i, int64_t n) {
  while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
  return i;
}

/// The values of a window, in order, `stride` apart.
template <class T>
struct SortedWindow {
  T* data = nullptr;
  int stride = 1, count = 0;

  OCTAVO_HOST_DEVICE T& at(int i) { return data[i * stride]; }
  OCTAVO_HOST_DEVICE void Insert(T value) {
    int k = count++;
    for (; k > 0 && at(k - 1) > value; --k) at(k) = at(k - 1);
    at(k) = value;
  }
  /// `old` must be in the window.
  OCTAVO_HOST_DEVICE void Replace(T old, T now) {
    int k = 0, last = count - 1;
    while (k < last) {
      const int middle = (k + last) / 2;
      if (at(middle) < old) {
        k = middle + 1;
      } else {
        last = middle;
      }
    }
    for (; k + 1 < count && at(k + 1) < now; ++k) at(k) = at(k + 1);
    for (; k > 0 && at(k - 1) > now; --k) at(k) = at(k - 1);
    at(k) = now;
  }
  OCTAVO_HOST_DEVICE T Median() { return at(count / 2); }
};

/// Slides a window over i = begin … end − 1 and calls emit(i, median) for each i. Step i adds the
/// values at(i, o) for o = −half … half, or only for o = 0 if `across` is false. `window` must have
/// room for the values of `size` steps.
template <class T, class At, class Emit>
OCTAVO_HOST_DEVICE void SlideMedian(SortedWindow<T> window, int64_t size, bool across,
                                    int64_t begin, int64_t end, At at, Emit emit) {
  const int64_t half = size / 2, wide = across ? half : 0;
  for (int64_t i = begin - half; i <= begin + half; ++i) {
    for (int64_t o = -wide; o <= wide; ++o) window.Insert(at(i, o));
  }
  for (int64_t i = begin;; ++i) {
    emit(i, window.Median());
    if (i + 1 >= end) return;
    for (int64_t o = -wide; o <= wide; ++o) window.Replace(at(i - half, o), at(i + half + 1, o));
  }
}

/// The k-th smallest (from 0) of `count` numbers, found bit by bit from their keys without storage.
template <class Load>
OCTAVO_HOST_DEVICE float KthSmallest(int64_t count, int64_t k, Load load) {
  uint32_t prefix = 0;
  for (int bit = 31; bit >= 0; --bit) {
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; ++i) zeros += (SortKey(load(i)) >> bit) == (prefix >> bit);
    if (k >= zeros) {
      k -= zeros;
      prefix |= 1u << bit;
    }
  }
  return FromSortKey(prefix);
}

/// Mean or median of `count` frames of one pixel.
template <class Load>
OCTAVO_HOST_DEVICE float FieldValue(int64_t count, bool median, Load load) {
  if (median) {
    const float upper = KthSmallest(count, count / 2, load);
    return count % 2 != 0 ? upper : 0.5f * (KthSmallest(count, count / 2 - 1, load) + upper);
  }
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(load(i));
  return static_cast<float>(sum / static_cast<double>(count));
}

/// Whether a pixel is replaced by the median of its surroundings.
OCTAVO_HOST_DEVICE inline bool IsOutlier(float value, float median, float difference,
                                         bool dark_too) {
  return !(value - median < difference) || (dark_too && !(median - value < difference));
}

/// The events that are counted, as bits of a pixel's flags.
enum PrepareFlag : uint32_t {
  kFlagOutlier = 1,
  kFlagNotFinite = 2,
  kFlagFloored = 4,
  kFlagCut = 8,
  kFlagUnlit = 16
};
inline constexpr int kPrepareFlags = 5;

/// The most coefficients of the correction of beam hardening.
inline constexpr int kHardeningTerms = 6;

struct Finishing {
  bool minus_log = false;
  float log_floor = 0, not_finite = 0;
  /// Of p, p², ... : what a line integral p becomes; no terms: it stays.
  int hardening_terms = 0;
  float hardening[kHardeningTerms] = {};
};
/// c1 p + c2 p² + ...; a value that becomes too large for f32 counts as one that is not finite.
OCTAVO_HOST_DEVICE inline float Hardened(const Finishing& f, float p, uint32_t* flags) {
  if (f.hardening_terms == 0) return p;
  float sum = 0;
  for (int k = f.hardening_terms - 1; k >= 0; --k) sum = fmaf(sum, p, f.hardening[k]);
  if (IsFinite(sum * p)) return sum * p;
  *flags |= kFlagNotFinite;
  return f.not_finite;
}
/// The line integral −log t of a transmission that is at least the floor. Without branches, so that
/// several of them are computed side by side.
OCTAVO_HOST_DEVICE inline float LineIntegral(const Finishing& f, float transmission,
                                             uint32_t* flags) {
  const bool floored = transmission < f.log_floor;             // also −∞
  const bool not_finite = !(transmission <= 3.402823466e38f);  // NaN, +∞
  const float p = -logf(floored ? f.log_floor : transmission);
  *flags |= (floored ? kFlagFloored : 0u) | (not_finite ? kFlagNotFinite : 0u);
  return not_finite ? f.not_finite : p;
}
/// Converts a transmission to the value that is reconstructed.
OCTAVO_HOST_DEVICE inline float Finished(const Finishing& f, float transmission, uint32_t* flags) {
  uint32_t mine = 0;
  float value = transmission;
  if (f.minus_log) {
    value = LineIntegral(f, transmission, &mine);
  } else if (!IsFinite(transmission)) {
    mine = kFlagNotFinite;
    value = f.not_finite;
  }
  *flags |= mine;
  return (mine & kFlagNotFinite) != 0 ? value : Hardened(f, value, flags);
}

/// The filter of phase retrieval for frequencies u, v in cycles per pixel along rows and columns:
///   kPaganin      1 / (1 + rows u² + columns v²)
///   kGeneralized  1 / (1 + strength (2 − cos(rows u) − cos(columns v)))
///   kFarago       1 / (cos χ + strength sin χ),  χ = rows u² + columns v²
struct PhaseFilter {
  enum class Kind : int32_t { kPaganin, kGeneralized, kFarago };
  Kind kind = Kind::kPaganin;
  float rows = 0, columns = 0, strength = 0;
};
/// The filter at the frequencies with index i of m and j of n.
OCTAVO_HOST_DEVICE inline float PhaseFactor(const PhaseFilter& f, int64_t i, int64_t m, int64_t j,
                                            int64_t n) {
  const float u = static_cast<float>(SignedFrequency(i, m)) / static_cast<float>(m);
  const float v = static_cast<float>(SignedFrequency(j, n)) / static_cast<float>(n);
  if (f.kind == PhaseFilter::Kind::kGeneralized) {
    // 1 − cos x = 2 sin²(x/2), which is exact for small x, too.
    const float a = sinf(0.5f * f.rows * u), b = sinf(0.5f * f.columns * v);
    return 1.0f / (1.0f + 2.0f * f.strength * (a * a + b * b));
  }
  const float squares = f.rows * u * u + f.columns * v * v;
  if (f.kind == PhaseFilter::Kind::kFarago)
    return 1.0f / (cosf(squares) + f.strength * sinf(squares));
  return 1.0f / (1.0f + squares);
}

/// Detector y of a stitched row of `width`. `near` is the row of the half turn in which the axis
/// lies, `far` the row of the half turn that is mirrored; both are `columns` wide. `right`: the
/// axis is near their last column.
OCTAVO_HOST_DEVICE inline float StitchedPixel(const float* near, const float* far, int64_t columns,
                                              int64_t width, double overlap, bool right,
                                              int64_t y) {
  if (right) y = width - 1 - y;
  const auto at = [&](const float* row, int64_t x) { return row[right ? columns - 1 - x : x]; };
  const int64_t x = y - (width - columns);
  const double mirror = overlap - 1 - static_cast<double>(x);
  if (mirror < 0) return at(near, x);
  const auto low = static_cast<int64_t>(mirror);
  const auto part = static_cast<float>(mirror - static_cast<double>(low));
  const int64_t high = low + 1 < columns ? low + 1 : columns - 1;
  const float turned =
      part == 0.0f ? at(far, low) : at(far, low) + part * (at(far, high) - at(far, low));
  if (x < 0) return turned;
  const auto weight = static_cast<float>(static_cast<double>(x) / (overlap - 1));
  return weight * at(near, x) + (1.0f - weight) * turned;
}

/// One step of a wavelet analysis: Σ filter[j] x[2i + 1 − j], edges mirrored; `scaling` are the
/// `taps` values of the scaling filter.
OCTAVO_HOST_DEVICE inline float WaveletAnalysis(const float* scaling, int taps, bool high,
                                                const float* x, int64_t n, int64_t stride,
                                                int64_t i) {
  float sum = 0;
  for (int j = 0; j < taps; ++j) {
    const float tap = !high                     ? scaling[taps - 1 - j]
                      : (taps - 1 - j) % 2 != 0 ? -scaling[j]
                                                : scaling[j];
    sum += tap * x[Mirrored(2 * i + 1 - j, n) * stride];
  }
  return sum;
}
/// The value at i that `m` low and `m` high coefficients make; null = zeros.
OCTAVO_HOST_DEVICE inline float WaveletSynthesis(const float* scaling, int taps, const float* low,
                                                 const float* high, int64_t m, int64_t stride,
                                                 int64_t i) {
  float sum = 0;
  // Tap j = i − 2k + taps − 2 lies in 0 … taps − 1.
  const int64_t most = (i + taps - 2) / 2, least = i / 2;
  for (int64_t k = least; k <= most && k < m; ++k) {
    const auto j = static_cast<int>(i - 2 * k + taps - 2);
    if (j < 0 || j >= taps) continue;
    if (low != nullptr) sum += scaling[j] * low[k * stride];
    if (high != nullptr)
      sum += (j % 2 != 0 ? -scaling[taps - 1 - j] : scaling[taps - 1 - j]) * high[k * stride];
  }
  return sum;
}

// -- stripes (Vo, Atwood, Drakopoulos 2018)

struct StripeLimits {
  double low = 0, high = 0;
  bool has_low = false, has_high = false;
  OCTAVO_HOST_DEVICE bool IsStripe(double value) const {
    return (has_high && value > high) || (has_low && value <= low);
  }
};
/// Algorithm 4: fits a line through the middle half of the values in falling order; values far off
/// the ends of the line are stripes. `value(i)`: the n values in falling order.
template <class Value>
OCTAVO_HOST_DEVICE StripeLimits FindStripes(int64_t n, double snr, Value value) {
  StripeLimits limits;
  const int64_t drop = n / 4, count = n - 2 * drop - 1;
  if (count < 2) return limits;
  const double middle = static_cast<double>(drop) + 0.5 * static_cast<double>(count - 1);
  double sum = 0, moment = 0, square = 0;
  for (int64_t i = drop; i < drop + count; ++i) {
    const double x = static_cast<double>(i) - middle;
    sum += value(i);
    moment += x * value(i);
    square += x * x;
  }
  const double slope = moment / square, first = sum / static_cast<double>(count) - slope * middle;
  const double last = first + slope * static_cast<double>(n - 1);
  const double noise = fmax(fabs(last - first), 1e-6);
  limits.has_high = fabs(value(0) - first) / noise >= snr;
  limits.has_low = fabs(value(n - 1) - last) / noise >= snr;
  limits.high = first + noise * snr * 0.5;
  limits.low = last - noise * snr * 0.5;
  return limits;
}

/// The median of `window` values of a list around i, edges mirrored.
OCTAVO_HOST_DEVICE inline double MedianAround(const double* list, int64_t n, int64_t i,
                                              int64_t window) {
  const int64_t half = window / 2;
  for (int64_t j = -half; j <= half; ++j) {
    const double candidate = list[Mirrored(i + j, n)];
    int64_t below = 0, same = 0;
    for (int64_t k = -half; k <= half; ++k) {
      const double value = list[Mirrored(i + k, n)];
      below += value < candidate;
      same += value == candidate;
    }
    if (below <= half && half < below + same) return candidate;
  }
  return list[i];
}

/// Mean of ten neighbours i − 5 … i + 4 of a row, edges mirrored.
OCTAVO_HOST_DEVICE inline double MeanOfTen(const float* row, int64_t n, int64_t i) {
  double sum = 0;
  for (int64_t j = i - 5; j < i + 5; ++j) sum += static_cast<double>(row[Mirrored(j, n)]);
  return sum / 10;
}

/// The part of frequency k of n that Münch's damping removes. The half belongs to the method, whose
/// grid lies between the frequencies.
OCTAVO_HOST_DEVICE inline float StripePart(int64_t k, int64_t n, float sigma) {
  const float frequency =
      static_cast<float>(k < n - n / 2 ? k : k - n) + (n % 2 == 0 ? 0.5f : 0.0f);
  return expf(-frequency * frequency / (2.0f * sigma * sigma));
}

// -- centre finding

/// Whether a frequency (signed indices) lies outside the double wedge of a sinogram over 360° (Vo
/// et al. 2014, eq. 3); `slope` is the wedge's width per row.
OCTAVO_HOST_DEVICE inline bool OutsideWedge(int64_t row, int64_t column, double slope,
                                            int64_t drop) {
  const int64_t v = row < 0 ? -row : row, u = column < 0 ? -column : column;
  return v > drop && u > 1 && static_cast<double>(u) <= floor(static_cast<double>(v) * slope + 0.5);
}

/// The value at x (any real number) of a row with these cubic B-spline coefficients; 0 beyond its
/// ends.
OCTAVO_HOST_DEVICE inline float SplineValue(const float* coefficients, int64_t n, double x) {
  if (x < 0 || x > static_cast<double>(n - 1)) return 0.0f;
  const double left = floor(x);
  const auto i = static_cast<int64_t>(left);
  const auto t = static_cast<float>(x - left), s = 1.0f - t;
  const auto at = [&](int64_t k) {
    k = k < 0 ? -k : k >= n ? 2 * (n - 1) - k : k;
    return coefficients[k];
  };
  return (s * s * s * at(i - 1) + (4.0f - 6.0f * t * t + 3.0f * t * t * t) * at(i) +
          (4.0f - 6.0f * s * s + 3.0f * s * s * s) * at(i + 1) + t * t * t * at(i + 2)) /
         6.0f;
}

}  // namespace octavo::inline gpu::math
