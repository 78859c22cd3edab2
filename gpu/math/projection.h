#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/element.h"
#include "gpu/math/half.h"
#include "gpu/math/host_device.h"

// Maxima of elements of volumes, shared by all backends.
namespace octavo::inline gpu::math {

/// The value that maxima compare: the element itself, or the magnitude of a complex number.
OCTAVO_HOST_DEVICE inline uint8_t Projected(uint8_t v) { return v; }
OCTAVO_HOST_DEVICE inline int8_t Projected(int8_t v) { return v; }
OCTAVO_HOST_DEVICE inline uint16_t Projected(uint16_t v) { return v; }
OCTAVO_HOST_DEVICE inline Half Projected(Half v) { return v; }
OCTAVO_HOST_DEVICE inline float Projected(float v) { return v; }
OCTAVO_HOST_DEVICE inline float Projected(Complex64 v) { return sqrtf(v.re * v.re + v.im * v.im); }

/// The maximum, which ignores NaN; the maximum of two NaNs is NaN.
OCTAVO_HOST_DEVICE inline uint8_t MaxOf(uint8_t a, uint8_t b) { return a > b ? a : b; }
OCTAVO_HOST_DEVICE inline int8_t MaxOf(int8_t a, int8_t b) { return a > b ? a : b; }
OCTAVO_HOST_DEVICE inline uint16_t MaxOf(uint16_t a, uint16_t b) { return a > b ? a : b; }
OCTAVO_HOST_DEVICE inline float MaxOf(float a, float b) { return fmaxf(a, b); }
OCTAVO_HOST_DEVICE inline Half MaxOf(Half a, Half b) {
  const float x = HalfToFloat(a.bits), y = HalfToFloat(b.bits);
  return x > y || y != y ? a : b;
}

}  // namespace octavo::inline gpu::math
