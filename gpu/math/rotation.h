#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"

// The elements of the parallel-beam projector, shared by all backends. One formula defines the
// whole matrix:
//   A[θ, d; pixel] = p/w · h((u − d)/w),   w = max(|cos θ|, |sin θ|),   u = c + X cos θ − Y sin θ
// with X to the right and Y downwards from the middle of the grid in pixels, p the pixel size, and
// h the box, the tent or the cubic of Keys. For the tent this is Joseph's projector (IEEE Trans.
// Med. Imaging 1982): along the ray one sample in each row (or column) of the image, interpolated
// within it. Rotating the image and summing along columns differs from it only in the positions of
// the samples. Forward and back use the same matrix, so one is the exact adjoint of the other, and
// both gather in a fixed order.
namespace octavo::inline gpu::math {

enum class RayInterpolation : int32_t { kNearest, kLinear, kCubic };

/// The number of zero columns on both sides of every row of images and sinograms; taps in them need
/// no test.
inline constexpr int32_t kRayMargin = 8;

/// The position at which ray d crosses line j (a row, or a column where |sin| > |cos|): middle + (d
/// − c) inverse + (j − middle) slope.
struct ForwardAngle {
  float inverse = 1;  // ±1/w
  float slope = 0;
};

/// Coefficients of the back step. Linear, cubic: `a` = p/w; `b` = a/w (linear) or 1/w (cubic);
/// nearest: b = ±w/2, the sign of the forward inverse.
struct BackAngle {
  float cosine = 1, minus_sine = 0, a = 1, b = 1;
};

/// The largest integer that is not above x, and in `above` the rest; |x| < 2^22.
OCTAVO_HOST_DEVICE inline int32_t FloorOf(float x, float* above) {
#if defined(__CUDA_ARCH__)
  const float shifted = __fadd_rd(x, 12582912.0f);  // 1.5 · 2^23: the sum's last bit is worth 1
  *above = x - (shifted - 12582912.0f);
  return __float_as_int(shifted) - 0x4B400000;
#else
  const float below = std::floor(x);
  *above = x - below;
  return static_cast<int32_t>(below);
#endif
}

// fmaxf and fminf of the library prevent the vectorisation of loops. Here it does not matter which
// of two zeros, or which result for NaN, they return.
OCTAVO_HOST_DEVICE inline float Larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}
OCTAVO_HOST_DEVICE inline float Smaller(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}

OCTAVO_HOST_DEVICE inline float KeysCubic(float t) {
  t = Smaller(fabsf(t), 2.0f);  // the kernel is 0 from 2 on
  const float inner = fmaf(fmaf(1.5f, t, -2.5f), t * t, 1.0f),
              outer = fmaf(fmaf(fmaf(-0.5f, t, 2.5f), t, -4.0f), t, 2.0f);
  return t < 1.0f ? inner : outer;
}

template <RayInterpolation kHow>
struct RayTaps;

template <>
struct RayTaps<RayInterpolation::kNearest> {
  static constexpr int kCount = 1;
  static constexpr float kReach = 0.5f;
  /// Index of the first tap and the weights at a position along a line.
  OCTAVO_HOST_DEVICE static int32_t Forward(float position, float* w) {
    float above;
    w[0] = 1.0f;
    return FloorOf(position + 0.5f, &above);
  }
  /// The same at detector coordinate u, with the weights of the matrix' column. A bin counts if the
  /// forward step rounds to this pixel.
  OCTAVO_HOST_DEVICE static int32_t Back(float u, const BackAngle& t, float* w) {
    float above;
    const float edge = u - t.b;
    int32_t d = FloorOf(edge, &above);
    if (t.b > 0 && above > 0.0f) ++d;
    const float off = static_cast<float>(d) - u;
    w[0] = (t.b > 0 ? off < t.b : off > t.b) ? t.a : 0.0f;
    return d;
  }
};

template <>
struct RayTaps<RayInterpolation::kLinear> {
  static constexpr int kCount = 2;
  static constexpr float kReach = 1.0f;
  OCTAVO_HOST_DEVICE static int32_t Forward(float position, float* w) {
    const int32_t i = FloorOf(position, &w[1]);
    w[0] = 1.0f - w[1];
    return i;
  }
  OCTAVO_HOST_DEVICE static int32_t Back(float u, const BackAngle& t, float* w) {
    float f;
    const int32_t d = FloorOf(u, &f);
    w[0] = Larger(fmaf(-f, t.b, t.a), 0.0f);
    w[1] = Larger(fmaf(f, t.b, t.a - t.b), 0.0f);
    return d;
  }
};

template <>
struct RayTaps<RayInterpolation::kCubic> {
  static constexpr int kCount = 4;
  static constexpr float kReach = 2.0f;
  OCTAVO_HOST_DEVICE static int32_t Forward(float position, float* w) {
    float f;
    const int32_t i = FloorOf(position, &f);
    for (int k = 0; k < 4; ++k) w[k] = KeysCubic(f + 1.0f - static_cast<float>(k));
    return i - 1;
  }
  OCTAVO_HOST_DEVICE static int32_t Back(float u, const BackAngle& t, float* w) {
    float f;
    const int32_t d = FloorOf(u, &f);
    for (int k = 0; k < 4; ++k) w[k] = t.a * KeysCubic((f + 1.0f - static_cast<float>(k)) * t.b);
    return d - 1;
  }
};

/// Position of a ray on the line that is `from_middle` lines off the middle; `offset` = middle + (d
/// − c) inverse.
OCTAVO_HOST_DEVICE inline float RayPosition(float from_middle, float slope, float offset) {
  return fmaf(from_middle, slope, offset);
}

/// Detector coordinate of the pixel (x right, y down from the middle).
OCTAVO_HOST_DEVICE inline float DetectorOf(float x, float y, const BackAngle& t, float center) {
  return fmaf(x, t.cosine, fmaf(y, t.minus_sine, center));
}

/// The lines of the grid that a ray can cross.
struct LineRange {
  int32_t begin = 0, end = 0;
};

/// The lines on which the ray at `distance` from the axis is inside the grid of n × n and the
/// circle of `radius` (both widened by a pixel or two: outside of them the image is zero). The
/// position on any of them is inside the margins.
OCTAVO_HOST_DEVICE inline LineRange LinesOf(const ForwardAngle& t, float distance, float n,
                                            float radius, float reach) {
  const float middle = 0.5f * (n - 1.0f), limit = middle + reach + 1.0f,
              offset = distance * t.inverse;
  float lo = -middle, hi = middle;
  if (fabsf(t.slope) > 1e-6f) {
    const float one = (-limit - offset) / t.slope, two = (limit - offset) / t.slope;
    lo = Larger(lo, Smaller(one, two));
    hi = Smaller(hi, Larger(one, two));
  } else if (fabsf(offset) > limit) {
    return {};
  }
  const float r = radius + 2.0f, left = r * r - distance * distance;
  if (left <= 0.0f) return {};
  const float half = sqrtf(left) / fabsf(t.inverse) + 2.0f,
              nearest = -distance * t.slope / t.inverse;
  lo = Larger(lo, nearest - half);
  hi = Smaller(hi, nearest + half);
  if (!(lo <= hi)) return {};
  const auto begin = static_cast<int32_t>(Larger(ceilf(lo + middle - 0.01f), 0.0f));
  const auto end = static_cast<int32_t>(Smaller(floorf(hi + middle + 0.01f) + 1.0f, n));
  return begin < end ? LineRange{begin, end} : LineRange{};
}

/// The position; if it lies beyond the margins, the nearest position at which all taps are in the
/// margins.
OCTAVO_HOST_DEVICE inline float Within(float position, float n) {
  return Smaller(Larger(position, -4.0f), n + 3.0f);
}

/// Whether the pixel at (x, y) from the middle lies in the circle.
OCTAVO_HOST_DEVICE inline bool InCircle(float x, float y, float radius) {
  return x * x + y * y <= radius * radius;
}

// The update of one element in the loops.
OCTAVO_HOST_DEVICE inline float Clamped(float value, float lo, float hi) {
  return Smaller(Larger(value, lo), hi);
}
OCTAVO_HOST_DEVICE inline float SirtUpdate(float x, float back, float weight, float relaxation) {
  return fmaf(relaxation * weight, back, x);
}
OCTAVO_HOST_DEVICE inline float MlemRatio(float measured, float projected, float floor) {
  return measured / Larger(projected, floor);
}
OCTAVO_HOST_DEVICE inline float MlemUpdate(float x, float back, float weight) {
  return x * (weight * back);
}

}  // namespace octavo::inline gpu::math
