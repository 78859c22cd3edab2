#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"
#include "gpu/math/spectral.h"

// Per-element functions on repeated scans: motion contrast and flow. Shared by all backends.
namespace octavo::inline gpu::math {

/// Maps a stored number to its value: value = lo + step * stored.
struct StoredScale {
  Value kind = Value::kMagnitude;
  float lo = 0, step = 1;
};

/// Amplitude |z| of a stored number.
OCTAVO_HOST_DEVICE inline float AmplitudeOf(const StoredScale& scale, float stored) {
  const float value = scale.lo + scale.step * stored;
  if (scale.kind == Value::kDb) return expf(value * 0.115129254649702f);  // 10^(dB/20)
  return scale.kind == Value::kPower ? sqrtf(fmaxf(value, 0.0f)) : value;
}

/// The amplitudes of one place (x, z) in the repeats of its B-scan.
template <class T>
struct RepeatAmplitudes {
  const T* in;           // [row, x, z], at (x, z) of row 0
  const int32_t* rows;   // row of each repeat
  int64_t row_elements;  // X * Z
  StoredScale scale;
  OCTAVO_HOST_DEVICE float operator()(int64_t repeat) const {
    return AmplitudeOf(scale, static_cast<float>(in[rows[repeat] * row_elements]));
  }
};

/// Speckle variance: mean of (a - mean a)² over n repeats (Mariampillai et al., Opt. Lett. 33,
/// 2008). NaN if any amplitude is NaN.
template <class F>
OCTAVO_HOST_DEVICE inline float SpeckleVariance(int64_t n, const F& amplitude) {
  float sum = 0;
  for (int64_t r = 0; r < n; ++r) sum += amplitude(r);
  const float mean = sum / static_cast<float>(n);
  float squares = 0;
  for (int64_t r = 0; r < n; ++r) {
    const float d = amplitude(r) - mean;
    squares += d * d;
  }
  return squares / static_cast<float>(n);
}

/// Amplitude decorrelation: 1 - mean of 2ab / (a² + b²) over the n-1 pairs of successive repeats
/// (Jia et al., Opt. Express 20, 2012, without splitting the spectrum). The result is 0 … 1. A pair
/// of zeros counts as equal.
template <class F>
OCTAVO_HOST_DEVICE inline float AmplitudeDecorrelation(int64_t n, const F& amplitude) {
  float sum = 0, a = amplitude(0);
  for (int64_t r = 1; r < n; ++r) {
    const float b = amplitude(r), power = a * a + b * b;
    sum += power == 0.0f ? 1.0f : 2.0f * a * b / power;
    a = b;
  }
  return 1.0f - sum / static_cast<float>(n - 1);
}

/// Adds Σ b conj(a) over `count` complex samples (re, im) at a and b.
OCTAVO_HOST_DEVICE inline void AddProducts(const float* a, const float* b, int64_t count, float* re,
                                           float* im) {
  for (int64_t k = 0; k < count; ++k) {
    const float ar = a[2 * k], ai = a[2 * k + 1], br = b[2 * k], bi = b[2 * k + 1];
    *re += br * ar + bi * ai;
    *im += bi * ar - br * ai;
  }
}

/// Phase of a sum of products in rad, -π … π; 0 if the sum is 0.
OCTAVO_HOST_DEVICE inline float PhaseOf(float re, float im) { return atan2f(im, re); }

}  // namespace octavo::inline gpu::math
