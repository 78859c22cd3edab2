#pragma once

#include <cstdint>
#include <cstring>

#include "gpu/math/host_device.h"

// IEEE half-precision numbers as bits, the same on all backends and without special instructions.
namespace octavo::inline gpu::math {

OCTAVO_HOST_DEVICE inline uint32_t FloatBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
OCTAVO_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

/// Nearest half, ties to even. Numbers that are too large become infinity, NaN stays NaN.
OCTAVO_HOST_DEVICE inline uint16_t FloatToHalf(float x) {
  const uint32_t bits = FloatBits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65536 and more
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half, 2^-14: adding 1/2 leaves multiples of 2^-24 in the low bits,
    // rounded by the addition.
    return static_cast<uint16_t>(sign | (FloatBits(FloatOfBits(magnitude) + 0.5f) - 0x3F000000u));
  }
  // Changes the exponent's bias from 127 to 15, then rounds away the 13 lowest bits. A carry
  // increments the exponent, up to infinity.
  return static_cast<uint16_t>(sign |
                               ((magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13));
}

/// The conversion is exact.
OCTAVO_HOST_DEVICE inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) return FloatOfBits(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  // Shifted into place, the bits read as the number times 2^-112, also if it is subnormal.
  return FloatOfBits(sign | FloatBits(FloatOfBits(magnitude << 13) * 5.192296858534828e33f));
}

}  // namespace octavo::inline gpu::math
