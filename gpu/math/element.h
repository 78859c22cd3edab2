#pragma once

#include <cstdint>

// Elements of arrays that C++ has no type for.
namespace octavo::inline gpu::math {

/// A half-precision number as it is stored.
struct Half {
  uint16_t bits;
};
/// Two f32 as they are stored.
struct Complex64 {
  float re, im;
};

}  // namespace octavo::inline gpu::math
