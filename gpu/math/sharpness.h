#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// The concentration of the power of an A-scan. Shared by all backends.
namespace octavo::inline gpu::math {

/// Σ p and Σ p² over depth samples.
struct PowerSums {
  float sum, squares;
};

/// 32 lanes sum the samples of an A-scan, and a binary tree adds the lanes, in the same order on
/// every backend.
constexpr int kSharpnessLanes = 32;

/// Sums of the samples begin + lane, begin + lane + 32, ... below `end`.
OCTAVO_HOST_DEVICE inline PowerSums LaneSums(const float* power, int64_t begin, int64_t end,
                                             int lane) {
  PowerSums sums{0.0f, 0.0f};
  for (int64_t z = begin + lane; z < end; z += kSharpnessLanes) {
    const float p = power[z];
    sums.sum += p;
    sums.squares += p * p;
  }
  return sums;
}

OCTAVO_HOST_DEVICE inline PowerSums Merge(const PowerSums& a, const PowerSums& b) {
  return {a.sum + b.sum, a.squares + b.squares};
}

}  // namespace octavo::inline gpu::math
