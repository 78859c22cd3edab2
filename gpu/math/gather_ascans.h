#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/host_device.h"
#include "gpu/math/spectral.h"

// Per-element function of gathering A-scans, shared by all backends.
namespace octavo::inline gpu::math {

/// Smallest sum of weights that gives a value. Below it, more than half of the value's weight is
/// missing.
inline constexpr float kLeastWeight = 0.5f;

/// Depth sample z of the weighted mean of A-scans in [ascan, depth]: Σ w v / Σ w over the taps with
/// index >= 0 and a v that is not NaN. NaN if their weights sum to less than kLeastWeight.
template <class T>
OCTAVO_HOST_DEVICE inline float Gather(const T* in, int64_t depth, int64_t z, const int32_t* index,
                                       const float* weight, int64_t taps) {
  float sum = 0, weights = 0;
  for (int64_t t = 0; t < taps; ++t) {
    if (index[t] < 0) continue;
    const float v = static_cast<float>(in[index[t] * depth + z]);
    if (v != v) continue;
    sum += weight[t] * v;
    weights += weight[t];
  }
  return weights < kLeastWeight ? NAN : sum / weights;
}

}  // namespace octavo::inline gpu::math
