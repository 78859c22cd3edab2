#pragma once

#include <cstdint>

namespace octavo::cuda {

/// Maximum that ignores NaN; of two NaNs it is NaN.
__device__ inline float MaxOf(float a, float b) { return fmaxf(a, b); }
__device__ inline uint8_t MaxOf(uint8_t a, uint8_t b) { return a > b ? a : b; }
__device__ inline uint16_t MaxOf(uint16_t a, uint16_t b) { return a > b ? a : b; }

}  // namespace octavo::cuda
