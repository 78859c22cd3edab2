#pragma once

// One result of each step of resampling (gpu/array/warp.h, and TapsSpec), as both twins compute it.
// Private to this folder.
//
// Positions are f64. Values are added up in f32 if the array holds u8, u16, i16 or f32 (or
// coefficients that were made of at most 16 bits or of f32), else in f64: an f32 result differs by
// a few units in its last place.

#include <cstdint>
#include <type_traits>

#include "gpu/array/array_ops.h"
#include "gpu/array/internal.h"
#include "gpu/array/warp.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/host_device.h"
#include "gpu/math/sampling.h"
#include "gpu/math/spline.h"

namespace octavo::inline gpu {

/// Reads numbers of a type that is known when the program is compiled, as W.
template <class T, class W>
struct NumbersOf {
  using Sum = W;
  const T* data;
  explicit NumbersOf(const void* from) : data(static_cast<const T*>(from)) {}
  OCTAVO_HOST_DEVICE W operator()(int64_t i) const { return static_cast<W>(data[i]); }
};
/// Reads numbers of any real type.
struct AnyNumbers {
  using Sum = double;
  const void* data;
  Scalar scalar;
  OCTAVO_HOST_DEVICE double operator()(int64_t i) const { return math::Load(scalar, data, i).re; }
};

/// Calls f with a reader of the array: one of its own for the types that images mostly have.
template <class F>
void ForNumbers(Scalar scalar, const void* data, F f) {
  switch (scalar) {
    case Scalar::kU8: f(NumbersOf<uint8_t, float>(data)); break;
    case Scalar::kU16: f(NumbersOf<uint16_t, float>(data)); break;
    case Scalar::kI16: f(NumbersOf<int16_t, float>(data)); break;
    case Scalar::kF32: f(NumbersOf<float, float>(data)); break;
    case Scalar::kF64: f(NumbersOf<double, double>(data)); break;
    default: f(AnyNumbers{.data = data, .scalar = scalar}); break;
  }
}

/// The type of spline coefficients of an array of such numbers: it holds them exactly.
constexpr Scalar CoefficientsOf(Scalar real) {
  return SizeOf(real) <= 2 || real == Scalar::kF32 ? Scalar::kF32 : Scalar::kF64;
}

/// Calls f with a reader of the samples and a pointer to the coefficients of a SplineSpec.
template <class F>
void ForSpline(const SplineSpec& s, const void* in, void* out, F f) {
  ForNumbers(s.in, in, [&](const auto& numbers) {
    using In = std::decay_t<decltype(numbers)>;
    if constexpr (std::is_same_v<In, AnyNumbers>) {
      if (s.out == Scalar::kF64) return f(numbers, static_cast<double*>(out));
      f(numbers, static_cast<float*>(out));
    } else {
      f(numbers, static_cast<typename In::Sum*>(out));
    }
  });
}

/// The type of a reader's numbers, known when the program is compiled if it can be: then the store
/// of a result has no branches.
template <class T, class W>
OCTAVO_HOST_DEVICE constexpr Scalar StoredAs(const NumbersOf<T, W>&, Scalar scalar) {
  if constexpr (sizeof(T) == 1) return Scalar::kU8;
  if constexpr (sizeof(T) == 2) return static_cast<T>(-1) > 0 ? Scalar::kU16 : Scalar::kI16;
  return scalar;  // of coefficients: the result has the type of the samples
}
OCTAVO_HOST_DEVICE inline Scalar StoredAs(const AnyNumbers&, Scalar scalar) { return scalar; }

OCTAVO_HOST_DEVICE inline void StoreConstant(Scalar out, math::Number constant, bool complex,
                                             void* to, int64_t at, int64_t part) {
  math::Store(out, to, at, {complex && part % 2 != 0 ? constant.im : constant.re});
}

/// Copies a number, bit by bit.
OCTAVO_HOST_DEVICE inline void CopyNumber(Scalar scalar, const void* in, int64_t from, void* out,
                                          int64_t to) {
  switch (SizeOf(scalar)) {
    case 1: math::WriteAs(out, to, math::ReadAs<uint8_t>(in, from)); break;
    case 2: math::WriteAs(out, to, math::ReadAs<uint16_t>(in, from)); break;
    case 4: math::WriteAs(out, to, math::ReadAs<uint32_t>(in, from)); break;
    default: math::WriteAs(out, to, math::ReadAs<uint64_t>(in, from)); break;
  }
}

/// A position's coordinate, or a shift's amount.
OCTAVO_HOST_DEVICE inline double CoordinateAt(Scalar scalar, const void* data, int64_t i) {
  if (scalar == Scalar::kF32) return static_cast<double>(math::ReadAs<float>(data, i));
  if (scalar == Scalar::kF64) return math::ReadAs<double>(data, i);
  return math::Load(scalar, data, i).re;
}

/// The index of a result along each axis. Divisions of 64 bits take several times as long as those
/// of 32.
OCTAVO_HOST_DEVICE inline void IndexOfResult(const int64_t (&extent)[3], bool few, int64_t at,
                                             int64_t (&index)[3]) {
  if (few) {
    const auto i = static_cast<uint32_t>(at), n2 = static_cast<uint32_t>(extent[2]),
               n1 = static_cast<uint32_t>(extent[1]), row = i / n2, plane = row / n1;
    index[2] = i - row * n2;
    index[1] = row - plane * n1;
    index[0] = plane;
    return;
  }
  const int64_t row = at / extent[2];
  index[2] = at - row * extent[2];
  index[0] = row / extent[1];
  index[1] = row - index[0] * extent[1];
}

/// Result `at` of a TapsSpec of real numbers. Complex ones are two real ones: RealTaps.
template <class In>
OCTAVO_HOST_DEVICE inline void TapsOne(const TapsSpec& s, bool few, const In& in,
                                       const int32_t* index, const double* weight, void* out,
                                       int64_t at) {
  const int64_t extent[3] = {s.outer, s.m, s.inner};
  int64_t i[3];
  IndexOfResult(extent, few, at, i);
  const int64_t first = i[0] * s.n * s.inner + i[2];
  double sum = 0;
  for (int64_t t = i[1] * s.taps; t < (i[1] + 1) * s.taps; ++t) {
    // A sample of weight 0 must not contribute, since it may be NaN.
    if (const double w = weight[t]; w != 0)
      sum += w * static_cast<double>(in(first + index[t] * s.inner));
  }
  math::Store(s.out, out, at, {sum});
}
inline TapsSpec RealTaps(TapsSpec s) {
  if (!IsComplex(s.in)) return s;
  s.in = RealOf(s.in);
  s.out = RealOf(s.out);
  s.inner *= 2;
  return s;
}

/// The position of result `i` along the axes from `first` on, not yet placed. Those before have one
/// sample, at 0.
OCTAVO_HOST_DEVICE inline void PositionOf(const WarpSpec& s, int first, bool few,
                                          const void* coordinates, int64_t i, double (&x)[3]) {
  int64_t index[3] = {0, 0, 0};
  if (s.positions != WarpPositions::kCoordinates) IndexOfResult(s.out_extent, few, i, index);
  OCTAVO_UNROLL
  for (int d = 0; d < 3; ++d) {
    x[d] = 0;
    if (d < first) continue;
    if (s.positions == WarpPositions::kMatrix) {
      x[d] = s.offset[d];
      OCTAVO_UNROLL
      for (int e = 0; e < 3; ++e) {
        if (e < first) continue;
        x[d] = math::PositionPlus(
            x[d], math::PositionTimes(s.matrix[d][e], static_cast<double>(index[e])));
      }
    } else {
      const double given = CoordinateAt(s.coordinates, coordinates,
                                        (d - first) * s.axis_stride + i * s.result_stride);
      x[d] = s.positions == WarpPositions::kCoordinates ? given
                                                        : static_cast<double>(index[d]) + given;
    }
  }
}

/// The taps of the three axes; those before the last kRank have one sample.
template <int kRank, class W>
OCTAVO_HOST_DEVICE inline W Interpolated(const math::LinearTaps<W> (&taps)[3], const auto& in,
                                         int64_t part) {
  constexpr int kPlanes = kRank > 2 ? 2 : 1, kRows = kRank > 1 ? 2 : 1;
  W planes[2] = {};
  OCTAVO_UNROLL
  for (int a = 0; a < kPlanes; ++a) {
    W rows[2] = {};
    OCTAVO_UNROLL
    for (int b = 0; b < kRows; ++b) {
      const int64_t from = part + (kRank > 2 ? taps[0].at[a] : 0) + (kRank > 1 ? taps[1].at[b] : 0);
      rows[b] = math::Mixed(in(from + taps[2].at[0]), in(from + taps[2].at[1]), taps[2].t);
    }
    planes[a] = kRows == 1 ? rows[0] : math::Mixed(rows[0], rows[1], taps[1].t);
  }
  return kPlanes == 1 ? planes[0] : math::Mixed(planes[0], planes[1], taps[0].t);
}
template <int kRank, class W>
OCTAVO_HOST_DEVICE inline W Interpolated(const math::CubicTaps<W> (&taps)[3], const auto& in,
                                         int64_t part) {
  constexpr int kPlanes = kRank > 2 ? 4 : 1, kRows = kRank > 1 ? 4 : 1;
  W sum = 0;
  OCTAVO_UNROLL
  for (int a = 0; a < kPlanes; ++a) {
    W plane = 0;
    OCTAVO_UNROLL
    for (int b = 0; b < kRows; ++b) {
      const int64_t from = part + (kRank > 2 ? taps[0].at[a] : 0) + (kRank > 1 ? taps[1].at[b] : 0);
      W row = 0;
      OCTAVO_UNROLL
      for (int c = 0; c < 4; ++c) row += taps[2].weight[c] * in(from + taps[2].at[c]);
      plane += kRows == 1 ? row : taps[1].weight[b] * row;
    }
    sum += kPlanes == 1 ? plane : taps[0].weight[a] * plane;
  }
  return sum;
}

/// How far outside positions of an axis may stay that has so much padding.
OCTAVO_HOST_DEVICE inline int64_t ReachOf(int64_t padding) {
  return padding > 0 ? math::kNearestReach : 0;
}

/// Result `i` of a step that interpolates. `in` reads samples, or coefficients if kCubic. `few`:
/// there are fewer than 2^31 results.
template <int kRank, bool kCubic, class In>
OCTAVO_HOST_DEVICE inline void WarpOne(const WarpSpec& s, bool few, const In& in,
                                       const void* coordinates, void* out, int64_t i) {
  using W = typename In::Sum;
  const Scalar stored = kCubic ? s.out : StoredAs(in, s.out);
  double x[3];
  PositionOf(s, 3 - kRank, few, coordinates, i, x);
  bool inside = true;
  OCTAVO_UNROLL
  for (int d = 3 - kRank; d < 3; ++d)
    inside = math::Place(s.edge, s.in_extent[d], &x[d], ReachOf(s.padding[d])) && inside;
  if (!inside) {
    for (int64_t part = 0; part < s.parts; ++part)
      StoreConstant(stored, s.constant, s.complex, out, i * s.parts + part, part);
    return;
  }
  std::conditional_t<kCubic, math::CubicTaps<W>, math::LinearTaps<W>> taps[3];
  int64_t stride = s.parts;
  OCTAVO_UNROLL
  for (int d = 2; d >= 3 - kRank; --d) {
    if constexpr (kCubic) {
      taps[d] = math::CubicTapsAt<W>(s.edge, s.in_extent[d], s.padding[d], stride, x[d]);
    } else {
      taps[d] = math::LinearTapsAt<W>(s.edge, s.in_extent[d], stride, x[d]);
    }
    stride *= s.in_extent[d] + 2 * s.padding[d];
  }
  for (int64_t part = 0; part < s.parts; ++part) {
    const W value = Interpolated<kRank, W>(taps, in, part);
    math::Store(stored, out, i * s.parts + part, {static_cast<double>(value)});
  }
}

/// Result `i` of a step that takes the nearest sample, bit by bit.
OCTAVO_HOST_DEVICE inline void WarpNearest(const WarpSpec& s, bool few, const void* in,
                                           const void* coordinates, void* out, int64_t i) {
  double x[3];
  PositionOf(s, 3 - s.rank, few, coordinates, i, x);
  bool inside = true;
  int64_t from = 0;
  for (int d = 0; d < 3; ++d) {
    inside = math::Place(s.edge, s.in_extent[d], &x[d]) && inside;
    if (inside) from = from * s.in_extent[d] + math::NearestAt(s.edge, s.in_extent[d], x[d]);
  }
  for (int64_t part = 0; part < s.parts; ++part) {
    if (inside) {
      CopyNumber(s.out, in, from * s.parts + part, out, i * s.parts + part);
    } else {
      StoreConstant(s.out, s.constant, s.complex, out, i * s.parts + part, part);
    }
  }
}

/// Result `i` of a shift.
template <math::Sampling kSampling, class In>
OCTAVO_HOST_DEVICE inline void ShiftOne(const ShiftSpec& s, bool few, const void* samples,
                                        const In& in, const void* amounts, void* out, int64_t i) {
  using W = typename In::Sum;
  constexpr bool kCubic = kSampling == math::Sampling::kCubic;
  const Scalar stored = kCubic ? s.out : StoredAs(in, s.out);
  const int64_t extent[3] = {s.outer, s.n, s.inner};
  int64_t index[3];
  IndexOfResult(extent, few, i, index);
  double x = static_cast<double>(index[1]) -
             CoordinateAt(s.amounts, amounts, index[0] * s.inner + index[2]);
  if (!math::Place(s.edge, s.n, &x, ReachOf(s.padding))) {
    for (int64_t part = 0; part < s.parts; ++part)
      StoreConstant(stored, s.constant, s.complex, out, i * s.parts + part, part);
    return;
  }
  const int64_t stride = s.inner * s.parts,
                first = index[0] * (s.n + 2 * s.padding) * stride + index[2] * s.parts;
  if constexpr (kSampling == math::Sampling::kNearest) {
    const int64_t from = first + math::NearestAt(s.edge, s.n, x) * stride;
    for (int64_t part = 0; part < s.parts; ++part)
      CopyNumber(s.out, samples, from + part, out, i * s.parts + part);
  } else {
    std::conditional_t<kCubic, math::CubicTaps<W>, math::LinearTaps<W>> taps[3];
    if constexpr (kCubic) {
      taps[2] = math::CubicTapsAt<W>(s.edge, s.n, s.padding, stride, x);
    } else {
      taps[2] = math::LinearTapsAt<W>(s.edge, s.n, stride, x);
    }
    for (int64_t part = 0; part < s.parts; ++part) {
      const W value = Interpolated<1, W>(taps, in, first + part);
      math::Store(stored, out, i * s.parts + part, {static_cast<double>(value)});
    }
  }
}

}  // namespace octavo::inline gpu
