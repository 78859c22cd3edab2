#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "gpu/math/finite.h"
#include "gpu/math/host_device.h"

// Per-element functions of the spectral chain, shared by all backends.
namespace octavo::inline gpu::math {

enum class Background : uint8_t { kNone, kStatic, kRolling, kBscan };
enum class Interpolation : uint8_t { kNone, kLinear, kCubic, kLanczos };
enum class Value : uint8_t { kDb, kMagnitude, kPower, kReal, kComplex };
/// The fixed pattern that is subtracted from each depth of a B-scan: none, the complex mean over
/// its A-scans, or the mean over that segment of kFixedPatternSegments in which it varies least.
enum class FixedPattern : uint8_t { kNone, kMean, kQuietSegment };

inline constexpr int64_t kFixedPatternSegments = 9;

/// The background that is subtracted from each record, computed from the sum of `count` records; 0
/// if count is 0.
OCTAVO_HOST_DEVICE inline float MeanOfRecords(double sum, double count, int64_t record_average) {
  return count > 0 ? static_cast<float>(sum / (count * static_cast<double>(record_average))) : 0.0f;
}

/// A-scan at which segment `s` of `segments` of a B-scan of `ascans` begins; s = segments gives the
/// end.
OCTAVO_HOST_DEVICE inline int64_t SegmentBegin(int64_t ascans, int64_t segments, int64_t s) {
  return ascans * s / segments;
}

/// The number of segments of a B-scan, the quietest of which gives the fixed pattern. 1 = the mean
/// of the B-scan gives it, also if segments would be too short to have a variance (the rest of a
/// B-scan that lost records).
OCTAVO_HOST_DEVICE inline int64_t PatternSegments(FixedPattern kind, int64_t ascans) {
  return kind == FixedPattern::kQuietSegment && ascans >= 2 * kFixedPatternSegments
             ? kFixedPatternSegments
             : 1;
}

/// Taps of an interpolation, and how many of them lie before the sample left of the position.
OCTAVO_HOST_DEVICE inline int Taps(Interpolation kind) {
  return kind == Interpolation::kNone     ? 1
         : kind == Interpolation::kLinear ? 2
         : kind == Interpolation::kCubic  ? 4
                                          : 8;
}
OCTAVO_HOST_DEVICE inline int TapsBefore(Interpolation kind) {
  return kind == Interpolation::kCubic ? 1 : kind == Interpolation::kLanczos ? 3 : 0;
}

/// The smallest power |z|^2 that kDb distinguishes: -300 dB. It keeps the logarithm finite.
inline constexpr float kPowerFloor = 1e-30f;

/// Catmull-Rom weights of the 4 taps at -1, 0, 1, 2 for the fraction t in [0, 1), in the precision
/// of t.
template <typename T>
OCTAVO_HOST_DEVICE inline void CubicWeights(T t, T w[4]) {
  const T t2 = t * t, t3 = t2 * t, half = T(0.5);
  w[0] = half * (-t3 + T(2) * t2 - t);
  w[1] = half * (T(3) * t3 - T(5) * t2 + T(2));
  w[2] = half * (T(-3) * t3 + T(4) * t2 + t);
  w[3] = half * (t3 - t2);
}

/// Lanczos weights (a = 4) of the 8 taps at -3 ... 4 for the fraction t in [0, 1): sinc(x) sinc(x /
/// 4) at x = t - tap, divided by their sum, so that a constant does not change.
inline void LanczosWeights(double t, float w[8]) {
  constexpr double kPi = 3.14159265358979323846;
  double v[8], sum = 0;
  for (int i = 0; i < 8; ++i) {
    const double x = kPi * (t - static_cast<double>(i - 3));
    v[i] = x == 0 ? 1 : std::fabs(x) >= 4 * kPi ? 0 : 4 * std::sin(x) * std::sin(x / 4) / (x * x);
    sum += v[i];
  }
  for (int i = 0; i < 8; ++i) w[i] = static_cast<float>(v[i] / sum);
}

/// The Taps(kind) weights of `kind` at the fraction t. They are the first numbers of a position
/// that are rounded.
inline void WeightsOf(Interpolation kind, double t, float w[8]) {
  if (kind == Interpolation::kLinear) {
    w[0] = static_cast<float>(1.0 - t);
    w[1] = static_cast<float>(t);
  } else if (kind == Interpolation::kCubic) {
    double v[4];
    CubicWeights(t, v);
    for (int i = 0; i < 4; ++i) w[i] = static_cast<float>(v[i]);
  } else {
    LanczosWeights(t, w);
  }
}

/// A position below 4096 in 32 bits, to 2^-21 of a sample: the upper 12 bits hold the sample left
/// of it, the lower 20 the fraction.
inline constexpr int kPositionFractionBits = 20;
inline uint32_t PositionBits(double r) {
  return static_cast<uint32_t>(llround(ldexp(r, kPositionFractionBits)));
}
OCTAVO_HOST_DEVICE inline uint32_t PositionSample(uint32_t bits) {
  return bits >> kPositionFractionBits;
}
/// The fraction, exact: as the lowest bits of a number between 8 and 16.
OCTAVO_HOST_DEVICE inline float PositionFraction(uint32_t bits) {
  const uint32_t eight = 0x41000000u | (bits & ((1u << kPositionFractionBits) - 1));
  float number;
  memcpy(&number, &eight, sizeof number);
  return number - 8.0f;
}

/// Value of a depth sample of the given power |z|^2; not for kReal and kComplex. NaN stays NaN in
/// dB.
OCTAVO_HOST_DEVICE inline float ValueOfPower(Value kind, float power) {
  if (kind == Value::kDb) return 10.0f * log10f(power < kPowerFloor ? kPowerFloor : power);
  return kind == Value::kPower ? power : sqrtf(power);
}

/// Value of a complex depth sample; kComplex gives the magnitude, which is what projections are
/// made of.
OCTAVO_HOST_DEVICE inline float ValueOf(Value kind, float re, float im) {
  return kind == Value::kReal ? re : ValueOfPower(kind, re * re + im * im);
}

/// Maps [lo, hi] to the range of the type: scale = (top - bottom) / (hi - lo), offset = bottom - lo
/// * scale. No clipping.
OCTAVO_HOST_DEVICE inline float ToLevels(float value, float scale, float offset) {
  return value * scale + offset;
}

/// Rounds half away from zero, then clips to 0 ... top; NaN becomes 0. `top` is 255 or 65535.
OCTAVO_HOST_DEVICE inline uint32_t Quantise(float x, float top) {
  if (!(x > 0.0f)) return 0u;
  return static_cast<uint32_t>(fminf(floorf(x + 0.5f), top));
}

/// Rounds half away from zero, then clips to bottom ... top; NaN becomes `bottom`, which is
/// negative.
OCTAVO_HOST_DEVICE inline int32_t QuantiseSigned(float x, float bottom, float top) {
  if (!(x > bottom)) return static_cast<int32_t>(bottom);
  const float rounded = floorf(fabsf(x) + 0.5f);
  return static_cast<int32_t>(fminf(x < 0.0f ? -rounded : rounded, top));
}

/// Whether rounding half away from zero takes a number out of the type's range, so that the voxel
/// is clipped there. NaN, which is stored as the lowest number, counts as below.
OCTAVO_HOST_DEVICE inline bool ClippedBelow(float x, float bottom) { return !(x > bottom - 0.5f); }
OCTAVO_HOST_DEVICE inline bool ClippedAbove(float x, float top) { return x >= top + 0.5f; }

/// The sum of powers after a new repeat has joined `before` earlier repeats, and the mean of the
/// repeats.
OCTAVO_HOST_DEVICE inline float JoinRepeat(float sum, int32_t before, float power) {
  return before == 0 ? power : sum + power;
}
OCTAVO_HOST_DEVICE inline float MeanOfRepeats(float sum, int32_t count) {
  return sum / static_cast<float>(count);
}

}  // namespace octavo::inline gpu::math
