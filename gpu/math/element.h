#pragma once

#include <cstdint>

// Element types of arrays that C++ lacks.
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
