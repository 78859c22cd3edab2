#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"

// The elements of Fourier reconstruction (gpu/tomography/gridding.h), shared by all backends.
namespace octavo::inline gpu::math {

/// The interpolation kernel of the gridding along one axis of the grid: that of Kaiser and Bessel,
/// φ(d) = I0(β √s) / I0(β) with s = 1 − (2d/width)², as a polynomial in s. It is 0 from half the
/// width on. In two dimensions the kernel is φ(dx) φ(dy).
struct GridKernel {
  static constexpr int kLeastWidth = 3, kMostWidth = 8, kMostTerms = kMostWidth + 4;
  int32_t width = 5;              // grid points
  float inverse_half = 2.0f / 5;  // 2 / width
  float terms[kMostTerms] = {};   // of s^0, s^1 …; width + 4 of them
  OCTAVO_HOST_DEVICE static constexpr int TermsOf(int width) { return width + 4; }
};

/// φ at s > 0, for a width known at compile time.
template <int kWidth>
OCTAVO_HOST_DEVICE inline float KernelAt(const GridKernel& kernel, float s) {
  constexpr int kTerms = GridKernel::TermsOf(kWidth);
  float value = kernel.terms[kTerms - 1];
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = kTerms - 2; i >= 0; --i) value = fmaf(value, s, kernel.terms[i]);
  return value;
}

/// The line of a projection's spectrum through the origin of the grid: the sample of signed
/// frequency r lies at (r step cosine, r step minus_sine), in grid points, x to the right and y
/// downwards.
struct GridLine {
  float cosine = 1, minus_sine = 0;
  float weight = 0;        // in front of every sample
  int32_t projection = 0;  // index in the configuration's order
  double shift = 0;        // bins from the axis to where the middle of the image is projected
};

/// The lines [begin, begin + count) cross a tile of the grid. They are counted cyclically: line i
/// is line i − lines from the number of lines on.
struct TileLines {
  int32_t begin = 0, count = 0;
};

/// Where positions along a line, in grid points from the origin, lie within a box in x
/// and in y. Empty where lo > hi.
struct LineSpan {
  float lo = 0, hi = -1;
};
OCTAVO_HOST_DEVICE inline void ClipSpan(float slope, float from, float to, LineSpan* span) {
  // The span of k with from <= k slope <= to. A slope near 0 is either always or never inside.
  if (fabsf(slope) < 1e-9f) {
    if (from > 0 || to < 0) *span = {0, -1};
    return;
  }
  const float a = from / slope, b = to / slope, lo = a < b ? a : b, hi = a < b ? b : a;
  if (lo > span->lo) span->lo = lo;
  if (hi < span->hi) span->hi = hi;
}

/// The transform of the images' chessboard: (−1)^i, which shifts a transform by half its length.
OCTAVO_HOST_DEVICE inline float Chessboard(int64_t i) { return (i & 1) == 0 ? 1.0f : -1.0f; }

}  // namespace octavo::inline gpu::math
