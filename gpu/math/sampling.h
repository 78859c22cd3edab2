#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"

// Where an array is read between its samples, and how it continues beyond its ends: shared by all
// backends. Source of the rules: scipy.ndimage (map_coordinates and its like), with the modes that
// SampleEdge names.
namespace octavo::inline gpu::math {

/// How values between samples are made. As octavo.v1.Sampling.
enum class Sampling : uint8_t {
  kDefault = 0,  // kLinear
  kNearest = 1,  // the nearest sample, of two the later one; SciPy's order 0
  kLinear = 2,   // order 1
  kCubic = 3,    // a cubic spline through the samples; order 3
};

/// How an array a b c d continues beyond its ends. As octavo.v1.SampleEdge.
enum class SampleEdge : uint8_t {
  kDefault = 0,   // kConstant
  kConstant = 1,  // by a value of its own
  kNearest = 2,   // a a a | a b c d | d d d
  kReflect = 3,   // c b a | a b c d | d c b
  kMirror = 4,    // d c b | a b c d | c b a
  kWrap = 5,      // b c d | a b c d | a b c; SciPy's mode 'grid-wrap'
};

/// A position may lie so much beyond an end and still count as on it: rounding alone moves
/// positions by less, in arrays of up to 2^20 samples.
inline constexpr double kPositionSlack = 1e-9;

/// The sample of an axis of n samples that continues it at i. kConstant continues as kMirror: the
/// spline's tails need samples there. The steps take less than a division: i is never far.
OCTAVO_HOST_DEVICE inline int64_t Folded(SampleEdge edge, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (n == 1) return 0;
  if (edge == SampleEdge::kNearest) return i < 0 ? 0 : n - 1;
  while (i < 0 || i >= n) {
    if (edge == SampleEdge::kWrap) {
      i += i < 0 ? n : -n;
    } else {
      const int64_t repeated = edge == SampleEdge::kReflect ? 1 : 0;  // of the end sample
      i = i < 0 ? -i - repeated : 2 * (n - 1) + repeated - i;
    }
  }
  return i;
}

/// Beyond the ends of an axis with kNearest a spline goes on through the repeated sample, and
/// swings around it. From so many samples on it counts as that sample, as in SciPy: the rest of the
/// swing is below 1e-6 of it.
inline constexpr int64_t kNearestReach = 12;

/// Moves the position `*x` on an axis of n samples to the place within the array that continues it
/// there. False: there is none, because the position lies outside (kConstant) or is not a number.
/// `reach`: kNearest leaves positions that are up to so many samples outside where they are.
OCTAVO_HOST_DEVICE inline bool Place(SampleEdge edge, int64_t n, double* x, int64_t reach = 0) {
  const double last = static_cast<double>(n - 1), count = static_cast<double>(n);
  double v = *x;
  if (v >= 0 && v <= last) return true;
  if (edge == SampleEdge::kConstant || edge == SampleEdge::kDefault) {
    if (!(v >= -kPositionSlack && v <= last + kPositionSlack)) return false;
    *x = v < 0 ? 0 : last;
    return true;
  }
  // The comparisons at the end leave NaN as it is, and keep rounding of large positions inside.
  if (edge == SampleEdge::kNearest) {
    const auto beyond = static_cast<double>(reach);
    v = v < -beyond ? -beyond : v > last + beyond ? last + beyond : v;
  } else if (n == 1) {
    v -= v;  // an infinite position is not a number then
  } else if (edge == SampleEdge::kWrap) {
    v -= count * floor(v / count);
    v = v < 0 || v >= count ? 0 : v;
  } else if (edge == SampleEdge::kReflect) {
    v += 0.5;
    v -= 2 * count * floor(v / (2 * count));
    v = (v > count ? 2 * count - v : v) - 0.5;
    v = v < -0.5 ? -0.5 : v > last + 0.5 ? last + 0.5 : v;
  } else {
    v -= 2 * last * floor(v / (2 * last));
    v = v > last ? 2 * last - v : v;
    v = v < 0 ? 0 : v > last ? last : v;
  }
  *x = v;
  return v == v;
}

/// Weights of the samples floor(x) - 1 ... floor(x) + 2 in a cubic spline; t = x - floor(x).
template <class W>
OCTAVO_HOST_DEVICE inline void SplineWeights(W t, W (&weight)[4]) {
  const W u = 1 - t, sixth = W{1} / W{6};
  weight[0] = u * u * u * sixth;
  weight[1] = (3 * t * t * (t - 2) + 4) * sixth;
  weight[2] = (3 * u * u * (u - 2) + 4) * sixth;
  weight[3] = t * t * t * sixth;
}

/// The samples of one axis that a value is made of, as distances in numbers from the axis's begin.
/// W: the type in which values are added up.
template <class W>
struct LinearTaps {
  int64_t at[2];
  W t;  // weight of the second
};
template <class W>
struct CubicTaps {
  int64_t at[4];
  W weight[4];
};

/// `x` has been placed. If it lies on a sample, that one alone counts: its neighbour may be NaN.
template <class W>
OCTAVO_HOST_DEVICE inline LinearTaps<W> LinearTapsAt(SampleEdge edge, int64_t n, int64_t stride,
                                                     double x) {
  const double first = floor(x);
  const auto i = static_cast<int64_t>(first);
  const double t = x - first;
  const int64_t from = Folded(edge, i, n) * stride;
  return {{from, t == 0 ? from : Folded(edge, i + 1, n) * stride}, static_cast<W>(t)};
}

/// `padding`: coefficients in front of the first sample (and behind the last), for positions up to
/// kNearestReach outside; 0: the coefficients continue as the samples do.
template <class W>
OCTAVO_HOST_DEVICE inline CubicTaps<W> CubicTapsAt(SampleEdge edge, int64_t n, int64_t padding,
                                                   int64_t stride, double x) {
  const double first = floor(x);
  const int64_t i = static_cast<int64_t>(first) - 1;
  CubicTaps<W> taps;
  SplineWeights(static_cast<W>(x - first), taps.weight);
  for (int k = 0; k < 4; ++k)
    taps.at[k] = (padding > 0 ? i + k + padding : Folded(edge, i + k, n)) * stride;
  return taps;
}

OCTAVO_HOST_DEVICE inline int64_t NearestAt(SampleEdge edge, int64_t n, double x) {
  return Folded(edge, static_cast<int64_t>(floor(x + 0.5)), n);
}

/// (1 - t) a + t b. With t = 0 it is a, whatever b is.
template <class W>
OCTAVO_HOST_DEVICE inline W Mixed(W a, W b, W t) {
  return t == 0 ? a : (1 - t) * a + t * b;
}

/// Sums and products that no compiler joins to one rounding, so that positions have the same bits
/// on every backend: which sample is nearest, and what is outside, may depend on the last of them.
OCTAVO_HOST_DEVICE inline double PositionPlus(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
OCTAVO_HOST_DEVICE inline double PositionTimes(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

}  // namespace octavo::inline gpu::math
