#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/hd.h"

// Per-element functions of the spectral chain, shared by all backends.
namespace octavo::math {

enum class Background : uint8_t { kNone, kStatic, kRolling };
enum class Interpolation : uint8_t { kNone, kLinear, kCubic };
enum class Value : uint8_t { kDb, kMagnitude, kPower };

/// Smallest power |z|^2 that kDb tells apart: -300 dB. Keeps the logarithm finite.
inline constexpr float kPowerFloor = 1e-30f;

/// Catmull-Rom weights of the 4 taps at -1, 0, 1, 2 for the fraction t in [0, 1).
OCTAVO_HD inline void CubicWeights(float t, float w[4]) {
  const float t2 = t * t, t3 = t2 * t;
  w[0] = 0.5f * (-t3 + 2.0f * t2 - t);
  w[1] = 0.5f * (3.0f * t3 - 5.0f * t2 + 2.0f);
  w[2] = 0.5f * (-3.0f * t3 + 4.0f * t2 + t);
  w[3] = 0.5f * (t3 - t2);
}

/// Value of a complex depth sample.
OCTAVO_HD inline float ValueOf(Value kind, float re, float im) {
  const float power = re * re + im * im;
  if (kind == Value::kDb) return 10.0f * log10f(fmaxf(power, kPowerFloor));
  return kind == Value::kPower ? power : sqrtf(power);
}

/// Maps [lo, hi] to [0, top]: scale = top / (hi - lo), offset = -lo * scale. No clipping.
OCTAVO_HD inline float ToLevels(float value, float scale, float offset) { return value * scale + offset; }

/// Rounds half away from zero, then clips to 0 ... top; NaN becomes 0. `top` is 255 or 65535.
OCTAVO_HD inline uint32_t Quantise(float x, float top) {
  if (!(x > 0.0f)) return 0u;
  return static_cast<uint32_t>(fminf(floorf(x + 0.5f), top));
}

}  // namespace octavo::math
