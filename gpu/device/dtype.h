#pragma once

#include <cstdint>

namespace octavo::inline gpu {

/// Element types of arrays. Values equal octavo.v1.Dtype.
enum class DType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kU16 = 3,
  kI16 = 4,
  kF16 = 5,
  kF32 = 6,
  kF64 = 7,
  kC64 = 8
};

/// One row of the table that defines every spelling.
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

/// Smallest and largest value of an integer type that levels map to. Both are 0 for other types.
inline constexpr float LowestOf(DType dtype) { return dtype == DType::kI8 ? -128.0f : 0.0f; }
inline constexpr float HighestOf(DType dtype) {
  return dtype == DType::kU8    ? 255.0f
         : dtype == DType::kI8  ? 127.0f
         : dtype == DType::kU16 ? 65535.0f
                                : 0.0f;
}
inline constexpr bool IsInteger(DType dtype) { return dtype <= DType::kI16; }

/// The value of a voxel that no record reached, repeated over 4 bytes: the lowest integer, or NaN.
inline constexpr uint32_t FillPattern(DType dtype) {
  return dtype == DType::kI8    ? 0x80808080u
         : dtype == DType::kF16 ? 0x7E007E00u
         : IsInteger(dtype)     ? 0u
                                : 0x7FC00000u;
}

/// Element type of maxima over a volume of `dtype`: the same type, except that complex numbers give
/// the type of their magnitudes.
inline constexpr DType ProjectionOf(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype;
}

inline constexpr int64_t SizeOf(DType dtype) { return Info(dtype).bytes; }

}  // namespace octavo::inline gpu
