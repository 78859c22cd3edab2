#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"
#include "gpu/math/rotation.h"

// One pixel of an image that is rotated as by OpenCV's warpAffine, which TomoPy's accelerated CPU
// code calls. Source positions are fixed-point numbers of 1/1024 of a pixel. They are rounded to
// whole pixels for nearest, and to 1/32 for linear and cubic. The image is zero outside.
namespace octavo::inline gpu::math {

/// Source x, y = (m0 x + m1 y + m2, m3 x + m4 y + m5).
struct TurnMatrix {
  double m[6] = {1, 0, 0, 0, 1, 0};
};

OCTAVO_HOST_DEVICE inline int32_t FixedPoint(double value) {
  return static_cast<int32_t>(rint(value * 1024.0));
}

OCTAVO_HOST_DEVICE inline float PixelOrZero(const float* image, int32_t n, int32_t x, int32_t y) {
  return x >= 0 && x < n && y >= 0 && y < n ? image[static_cast<int64_t>(y) * n + x] : 0.0f;
}

/// OpenCV's cubic has a = −0.75, unlike the cubic of the corrected form.
OCTAVO_HOST_DEVICE inline void OpenCvCubic(float x, float* w) {
  constexpr float kA = -0.75f;
  w[0] = ((kA * (x + 1) - 5 * kA) * (x + 1) + 8 * kA) * (x + 1) - 4 * kA;
  w[1] = ((kA + 2) * x - (kA + 3)) * x * x + 1;
  w[2] = ((kA + 2) * (1 - x) - (kA + 3)) * (1 - x) * (1 - x) + 1;
  w[3] = 1.0f - w[0] - w[1] - w[2];
}

OCTAVO_HOST_DEVICE inline float TurnedPixel(const float* image, int32_t n, const TurnMatrix& t,
                                            RayInterpolation how, int32_t x, int32_t y) {
  const bool nearest = how == RayInterpolation::kNearest;
  const int32_t round = nearest ? 512 : 16;
  const int32_t fx = FixedPoint(t.m[1] * y + t.m[2]) + round + FixedPoint(t.m[0] * x);
  const int32_t fy = FixedPoint(t.m[4] * y + t.m[5]) + round + FixedPoint(t.m[3] * x);
  const int32_t sx = fx >> 10, sy = fy >> 10;
  if (nearest) return PixelOrZero(image, n, sx, sy);
  const float ax = static_cast<float>((fx >> 5) & 31) / 32.0f,
              ay = static_cast<float>((fy >> 5) & 31) / 32.0f;
  if (how == RayInterpolation::kLinear) {
    return PixelOrZero(image, n, sx, sy) * ((1 - ax) * (1 - ay)) +
           PixelOrZero(image, n, sx + 1, sy) * (ax * (1 - ay)) +
           PixelOrZero(image, n, sx, sy + 1) * ((1 - ax) * ay) +
           PixelOrZero(image, n, sx + 1, sy + 1) * (ax * ay);
  }
  float wx[4], wy[4], sum = 0;
  OpenCvCubic(ax, wx);
  OpenCvCubic(ay, wy);
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 4; ++i)
      sum += PixelOrZero(image, n, sx + i - 1, sy + j - 1) * (wx[i] * wy[j]);
  }
  return sum;
}

/// The value that TomoPy adds to every pixel of a row: the residual or the ratio, or 0 where the
/// row's sum is zero or the result is not finite.
OCTAVO_HOST_DEVICE inline float SpreadTerm(float measured, float sum, bool ratio) {
  if (sum == 0.0f) return 0.0f;
  const float u = ratio ? measured / sum : measured - sum;
  return u - u == 0.0f ? u : 0.0f;
}

OCTAVO_HOST_DEVICE inline float SpreadUpdated(float x, float update, float cover, float n,
                                              bool ratio) {
  const float u = update / cover / n;
  if (cover == 0.0f || !(u - u == 0.0f)) return x;
  return ratio ? x * u : x + u;
}

}  // namespace octavo::inline gpu::math
