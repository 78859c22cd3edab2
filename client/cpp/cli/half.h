#pragma once

#include <cmath>
#include <cstdint>

namespace octavo::cli {

/// An f16 as it is stored.
struct Half {
  uint16_t bits = 0;
};
inline double Number(Half half) {
  const int exponent = half.bits >> 10 & 31, fraction = half.bits & 1023;
  if (exponent == 31 && fraction != 0) return NAN;
  const double magnitude = exponent == 31  ? HUGE_VAL
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return (half.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace octavo::cli
