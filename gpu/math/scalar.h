#pragma once

#include <cstdint>

namespace octavo::inline gpu {

/// Element scalars of arrays in general. Values equal octavo.v1.Scalar; the first eight equal
/// DType, the element types of volumes.
enum class Scalar : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kU16 = 3,
  kI16 = 4,
  kF16 = 5,
  kF32 = 6,
  kF64 = 7,
  kC64 = 8,  // two f32
  kU32 = 9,
  kI32 = 10,
  kU64 = 11,
  kI64 = 12,
  kC32 = 13,   // two f16
  kC128 = 14,  // two f64
};
inline constexpr int kMostScalar = 14;

inline constexpr int64_t SizeOf(Scalar scalar) {
  switch (scalar) {
    case Scalar::kU8:
    case Scalar::kI8: return 1;
    case Scalar::kU16:
    case Scalar::kI16:
    case Scalar::kF16: return 2;
    case Scalar::kF32:
    case Scalar::kU32:
    case Scalar::kI32:
    case Scalar::kC32: return 4;
    case Scalar::kF64:
    case Scalar::kC64:
    case Scalar::kU64:
    case Scalar::kI64: return 8;
    case Scalar::kC128: return 16;
  }
  return 0;
}
inline constexpr const char* NameOf(Scalar scalar) {
  constexpr const char* kNames[] = {"?",   "u8",  "i8",  "u16", "i16", "f16", "f32", "f64",
                                    "c64", "u32", "i32", "u64", "i64", "c32", "c128"};
  return kNames[static_cast<int>(scalar) <= kMostScalar ? static_cast<int>(scalar) : 0];
}
inline constexpr bool IsComplex(Scalar scalar) {
  return scalar == Scalar::kC32 || scalar == Scalar::kC64 || scalar == Scalar::kC128;
}
inline constexpr bool IsFloating(Scalar scalar) {
  return scalar == Scalar::kF16 || scalar == Scalar::kF32 || scalar == Scalar::kF64;
}
inline constexpr bool IsIntegral(Scalar scalar) {
  return !IsComplex(scalar) && !IsFloating(scalar);
}

}  // namespace octavo::inline gpu
