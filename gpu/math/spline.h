#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// The prefilter of a cubic spline: from samples to the coefficients c of B-splines with (c[i-1] + 4
// c[i] + c[i+1]) / 6 = sample i. Shared by all backends. Source: M. Unser, "Splines: a perfect fit
// for signal and image processing", IEEE Signal Processing Magazine 16 (1999) 22-38;
// scipy.ndimage.spline_filter.
namespace octavo::inline gpu::math {

inline constexpr double kSplinePole = -0.26794919243112270647;  // √3 - 2

/// The filter looks both ways along the whole line, and the weight of a sample falls to pole^k at a
/// distance of k. So a line is cut into segments that begin kSplineHalo samples before their first
/// coefficient and end as many after the last: what lies further weighs less than the rounding of
/// the coefficients, 7e-10 for f32 and 7e-18 for f64. At the ends of a line the halo reads the
/// samples that continue it, which gives the start values of the exact sums in SciPy.
inline constexpr int kSplineSegment = 32;
template <class T>
inline constexpr int kSplineHalo = sizeof(T) == 4 ? 16 : 30;

#if defined(__CUDA_ARCH__)
#define OCTAVO_UNROLL _Pragma("unroll")
#else
#define OCTAVO_UNROLL
#endif

/// The coefficients of one segment. `sample(i)` is sample i of the segment, -kHalo <= i <
/// kSplineSegment + kHalo. Recursions run in V, from the steady state of a constant line.
template <int kHalo, class V, class Sample>
OCTAVO_HOST_DEVICE inline void SplineSegment(const Sample& sample, V (&made)[kSplineSegment]) {
  constexpr double kPole = kSplinePole;
  V causal[kSplineSegment + kHalo];
  V state = sample(-kHalo) * (1 / (1 - kPole));
  OCTAVO_UNROLL
  for (int i = 1 - kHalo; i < 0; ++i) state = sample(i) + state * kPole;
  OCTAVO_UNROLL
  for (int i = 0; i < kSplineSegment + kHalo; ++i) {
    state = sample(i) + state * kPole;
    causal[i] = state;
  }
  state = state * (kPole / (kPole - 1));
  OCTAVO_UNROLL
  for (int i = kSplineSegment + kHalo - 2; i >= kSplineSegment; --i)
    state = (state - causal[i]) * kPole;
  OCTAVO_UNROLL
  for (int i = kSplineSegment - 1; i >= 0; --i) {
    state = (state - causal[i]) * kPole;
    made[i] = state * 6.0;
  }
}

}  // namespace octavo::inline gpu::math
