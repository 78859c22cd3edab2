#pragma once

#include <cstdint>

namespace octavo {

/// Element types of arrays. Values equal octavo.v1.DType.
enum class DType : uint8_t { kU8 = 1, kI8 = 2, kU16 = 3, kI16 = 4, kF16 = 5, kF32 = 6, kF64 = 7, kC64 = 8 };

/// One row of the table that every spelling comes from.
struct DTypeInfo {
  int64_t bytes;
  const char* name;   // "u8"
  const char* numpy;  // "|u1"
  const char* zarr;   // "uint8"
};

inline constexpr DTypeInfo Info(DType dtype) {
  switch (dtype) {
    case DType::kU8: return {1, "u8", "|u1", "uint8"};
    case DType::kI8: return {1, "i8", "|i1", "int8"};
    case DType::kU16: return {2, "u16", "<u2", "uint16"};
    case DType::kI16: return {2, "i16", "<i2", "int16"};
    case DType::kF16: return {2, "f16", "<f2", "float16"};
    case DType::kF32: return {4, "f32", "<f4", "float32"};
    case DType::kF64: return {8, "f64", "<f8", "float64"};
    case DType::kC64: return {8, "c64", "<c8", "complex64"};
  }
  return {0, "?", "?", "?"};
}

inline constexpr int64_t SizeOf(DType dtype) { return Info(dtype).bytes; }

}  // namespace octavo
