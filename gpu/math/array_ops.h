#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gpu/math/half.h"
#include "gpu/math/host_device.h"
#include "gpu/math/scalar.h"

// Per-element maths of chained operations, shared by all backends. Everything is computed in f64. A
// device computes f64 as fast as its memory delivers the elements, and integers, f32 and their sums
// are the same on every backend.
namespace octavo::inline gpu::math {

/// An element of any type; im is 0 for real ones. 64-bit integers beyond 2^53 lose their last
/// digits.
struct Number {
  double re = 0, im = 0;
};

/// The part of a complex element that an operation reads.
enum class Part : uint8_t {
  kAll = 0,
  kReal = 1,
  kImaginary = 2,
  kMagnitude = 3,
  kPhase = 4,
  kPower = 5
};

template <typename T>
OCTAVO_HOST_DEVICE inline T ReadAs(const void* data, int64_t i) {
  return static_cast<const T*>(data)[i];
}

OCTAVO_HOST_DEVICE inline Number Load(Scalar type, const void* data, int64_t i) {
  switch (type) {
    case Scalar::kU8: return {static_cast<double>(ReadAs<uint8_t>(data, i))};
    case Scalar::kI8: return {static_cast<double>(ReadAs<int8_t>(data, i))};
    case Scalar::kU16: return {static_cast<double>(ReadAs<uint16_t>(data, i))};
    case Scalar::kI16: return {static_cast<double>(ReadAs<int16_t>(data, i))};
    case Scalar::kF16: return {static_cast<double>(HalfToFloat(ReadAs<uint16_t>(data, i)))};
    case Scalar::kF32: return {static_cast<double>(ReadAs<float>(data, i))};
    case Scalar::kF64: return {ReadAs<double>(data, i)};
    case Scalar::kC64:
      return {static_cast<double>(ReadAs<float>(data, 2 * i)),
              static_cast<double>(ReadAs<float>(data, 2 * i + 1))};
    case Scalar::kU32: return {static_cast<double>(ReadAs<uint32_t>(data, i))};
    case Scalar::kI32: return {static_cast<double>(ReadAs<int32_t>(data, i))};
    case Scalar::kU64: return {static_cast<double>(ReadAs<uint64_t>(data, i))};
    case Scalar::kI64: return {static_cast<double>(ReadAs<int64_t>(data, i))};
    case Scalar::kC32:
      return {static_cast<double>(HalfToFloat(ReadAs<uint16_t>(data, 2 * i))),
              static_cast<double>(HalfToFloat(ReadAs<uint16_t>(data, 2 * i + 1)))};
    case Scalar::kC128: return {ReadAs<double>(data, 2 * i), ReadAs<double>(data, 2 * i + 1)};
  }
  return {};
}

OCTAVO_HOST_DEVICE inline Number PartOf(Part part, Number v) {
  switch (part) {
    case Part::kAll: return v;
    case Part::kReal: return {v.re};
    case Part::kImaginary: return {v.im};
    case Part::kMagnitude: return {sqrt(v.re * v.re + v.im * v.im)};
    case Part::kPhase: return {atan2(v.im, v.re)};
    case Part::kPower: return {v.re * v.re + v.im * v.im};
  }
  return v;
}

/// Nearest integer, halves away from zero, clipped to [lowest, highest]; NaN becomes 0.
OCTAVO_HOST_DEVICE inline double Rounded(double v, double lowest, double highest) {
  if (!(v == v)) return 0;
  const double r = v < 0 ? -floor(0.5 - v) : floor(v + 0.5);
  return r < lowest ? lowest : r > highest ? highest : r;
}

template <typename T>
OCTAVO_HOST_DEVICE inline void WriteAs(void* data, int64_t i, T v) {
  static_cast<T*>(data)[i] = v;
}

/// Stores `v` as an element of `type`. Integers are rounded and clipped to their type's range. A
/// real type takes the real part of a complex number.
OCTAVO_HOST_DEVICE inline void Store(Scalar type, void* data, int64_t i, Number v) {
  switch (type) {
    case Scalar::kU8: return WriteAs(data, i, static_cast<uint8_t>(Rounded(v.re, 0, 255)));
    case Scalar::kI8: return WriteAs(data, i, static_cast<int8_t>(Rounded(v.re, -128, 127)));
    case Scalar::kU16: return WriteAs(data, i, static_cast<uint16_t>(Rounded(v.re, 0, 65535)));
    case Scalar::kI16: return WriteAs(data, i, static_cast<int16_t>(Rounded(v.re, -32768, 32767)));
    case Scalar::kF16: return WriteAs(data, i, FloatToHalf(static_cast<float>(v.re)));
    case Scalar::kF32: return WriteAs(data, i, static_cast<float>(v.re));
    case Scalar::kF64: return WriteAs(data, i, v.re);
    case Scalar::kC64:
      WriteAs(data, 2 * i, static_cast<float>(v.re));
      return WriteAs(data, 2 * i + 1, static_cast<float>(v.im));
    case Scalar::kU32:
      return WriteAs(data, i, static_cast<uint32_t>(Rounded(v.re, 0, 4294967295.0)));
    case Scalar::kI32:
      return WriteAs(data, i, static_cast<int32_t>(Rounded(v.re, -2147483648.0, 2147483647.0)));
    // The largest f64 below 2^64 and 2^63.
    case Scalar::kU64:
      return WriteAs(data, i, static_cast<uint64_t>(Rounded(v.re, 0, 18446744073709549568.0)));
    case Scalar::kI64:
      return WriteAs(
          data, i,
          static_cast<int64_t>(Rounded(v.re, -9223372036854775808.0, 9223372036854774784.0)));
    case Scalar::kC32:
      WriteAs(data, 2 * i, FloatToHalf(static_cast<float>(v.re)));
      return WriteAs(data, 2 * i + 1, FloatToHalf(static_cast<float>(v.im)));
    case Scalar::kC128: WriteAs(data, 2 * i, v.re); return WriteAs(data, 2 * i + 1, v.im);
  }
}

OCTAVO_HOST_DEVICE inline Number Add(Number a, Number b) { return {a.re + b.re, a.im + b.im}; }
OCTAVO_HOST_DEVICE inline Number Subtract(Number a, Number b) { return {a.re - b.re, a.im - b.im}; }
OCTAVO_HOST_DEVICE inline Number Multiply(Number a, Number b) {
  // A product with a real number keeps NaN and infinities in the part in which they are.
  if (b.im == 0) return {a.re * b.re, a.im * b.re};
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

OCTAVO_HOST_DEVICE inline Number Divide(Number a, Number b) {
  if (b.im == 0) return {a.re / b.re, a.im / b.re};
  const double power = b.re * b.re + b.im * b.im;
  return {(a.re * b.re + a.im * b.im) / power, (a.im * b.re - a.re * b.im) / power};
}

enum class Reduction : uint8_t { kSum = 1, kMin = 2, kMax = 3, kMean = 4, kStd = 5 };

/// State of a reduction over the elements so far. Join combines two states, so that the way in
/// which the elements are divided changes only the rounding of f64 sums.
struct Accumulator {
  double shift = 0;       // of deviations: the first element, or 0 if it is not finite
  double re = 0, im = 0;  // sums of the elements minus the shift
  double square = 0;      // sum of squares of real parts minus the shift
  double extreme = 0;
  int64_t count = 0;
  int64_t nan = 0;
};

OCTAVO_HOST_DEVICE inline void Include(Reduction kind, Number v, Accumulator* a) {
  if (!(v.re == v.re) || !(v.im == v.im)) {
    ++a->nan;
    return;
  }
  if (kind == Reduction::kMin || kind == Reduction::kMax) {
    if (a->count == 0 || (kind == Reduction::kMin ? v.re < a->extreme : v.re > a->extreme))
      a->extreme = v.re;
  } else {
    // Squares of differences from one of the elements do not lose small deviations to rounding.
    if (kind == Reduction::kStd && a->count == 0 && v.re - v.re == 0) a->shift = v.re;
    const double d = v.re - a->shift;
    a->re += d;
    a->im += v.im;
    if (kind == Reduction::kStd) a->square += d * d;
  }
  ++a->count;
}

OCTAVO_HOST_DEVICE inline void Join(Reduction kind, const Accumulator& b, Accumulator* a) {
  if (b.count > 0 && (kind == Reduction::kMin || kind == Reduction::kMax)) {
    if (a->count == 0 ||
        (kind == Reduction::kMin ? b.extreme < a->extreme : b.extreme > a->extreme))
      a->extreme = b.extreme;
  }
  if (kind == Reduction::kStd && b.count > 0) {
    if (a->count == 0) a->shift = b.shift;
    // The sums of b, with the shift of a.
    const double apart = b.shift - a->shift, n = static_cast<double>(b.count);
    a->square += b.square + apart * (2 * b.re + n * apart);
    a->re += b.re + n * apart;
  } else {
    a->re += b.re;
    a->square += b.square;
  }
  a->im += b.im;
  a->count += b.count;
  a->nan += b.nan;
}

/// With `skip_nan`, NaN elements are ignored; otherwise they make the result NaN. The sum of no
/// elements is 0, every other reduction of no elements is NaN. Standard deviations divide by the
/// number of elements.
OCTAVO_HOST_DEVICE inline Number Finish(Reduction kind, bool skip_nan, const Accumulator& a) {
  const double none = NAN, n = static_cast<double>(a.count);
  if (a.nan > 0 && !skip_nan) return {none, none};
  if (kind == Reduction::kSum) return {a.re, a.im};
  if (a.count == 0) return {none, none};
  switch (kind) {
    case Reduction::kMean: return {a.re / n, a.im / n};
    case Reduction::kStd: {
      const double mean = a.re / n, variance = a.square / n - mean * mean;
      return {variance > 0 ? sqrt(variance) : 0};
    }
    default: return {a.extreme};
  }
}

/// The bin of `v` if [lo, hi] is divided into `bins` equal bins; -1 = none. The last one contains
/// hi. As in NumPy, a comparison with the edges corrects a bin that rounding has moved beyond an
/// edge.
OCTAVO_HOST_DEVICE inline int64_t BinOf(double v, double lo, double hi, int64_t bins) {
  if (!(v >= lo) || !(v <= hi)) return -1;
  const double step = (hi - lo) / static_cast<double>(bins);
  int64_t bin = static_cast<int64_t>((v - lo) / (hi - lo) * static_cast<double>(bins));
  if (bin >= bins) bin = bins - 1;
  if (bin > 0 && v < lo + static_cast<double>(bin) * step) --bin;
  if (bin + 1 < bins && v >= lo + static_cast<double>(bin + 1) * step) ++bin;
  return bin;
}

/// Maps numbers (not NaN) to integers of the same order, and back.
OCTAVO_HOST_DEVICE inline uint64_t KeyOf(double v) {
  uint64_t bits;
  memcpy(&bits, &v, 8);
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}
OCTAVO_HOST_DEVICE inline double OfKey(uint64_t key) {
  const uint64_t bits = key >> 63 != 0 ? key & ~(uint64_t{1} << 63) : ~key;
  double v;
  memcpy(&v, &bits, 8);
  return v;
}

/// Interpolates between the order statistics below and above the rank, as NumPy's "linear" method;
/// exact at whole ranks.
OCTAVO_HOST_DEVICE inline double Between(double below, double above, double fraction) {
  return fraction >= 0.5 ? above - (above - below) * (1 - fraction)
                         : below + (above - below) * fraction;
}

}  // namespace octavo::inline gpu::math
