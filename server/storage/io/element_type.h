#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "gpu/device/dtype.h"
#include "gpu/device/scalar.h"

namespace octavo::storage {

/// An element as a file stores it: integers and floats of 1 to 8 bytes, complex numbers of two
/// floats. More types than volumes have (gpu/device/dtype.h).
struct ElementType {
  enum class Kind : uint8_t { kUnsigned, kSigned, kFloat, kComplex };
  Kind kind = Kind::kUnsigned;
  int64_t bytes = 1;  // of an element, complex ones as a whole

  friend bool operator==(const ElementType&, const ElementType&) = default;
  /// "u8", "i32", "f16", "c64".
  std::string Name() const;
  /// Bytes of the number that byte order applies to.
  int64_t number_bytes() const { return kind == Kind::kComplex ? bytes / 2 : bytes; }
};

/// u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64, c64, c128; nothing for other types.
std::optional<ElementType> CheckedElementType(ElementType::Kind kind, int64_t bytes);
/// By the name that Name gives.
std::optional<ElementType> ElementTypeNamed(absl::string_view name);
/// All names, for messages: "u8, i8, ...".
inline constexpr char kElementTypeNames[] =
    "u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64, c64, c128";

ElementType ElementTypeOf(DType dtype);
/// The type of volumes that holds every value of `type` exactly: itself, or f64 for 32-bit
/// integers. Nothing for u64, i64 and c128.
std::optional<DType> ExactVolumeType(const ElementType& type);

/// The same type as arrays call it. Nothing for types that arrays do not have.
std::optional<Scalar> ElementScalar(const ElementType& type);

/// Reverses the bytes of each number in `count` elements, in place.
void SwapBytes(const ElementType& type, int64_t count, void* data);

/// What a conversion could not keep: values beyond the range of the new type (no infinities where
/// it has them), and NaN where it has none.
struct ClippedElements {
  int64_t below = 0, above = 0, nan = 0;
};

/// Converts `count` elements in host byte order; `out` may not overlap `in`. Each value becomes
/// `scale` * value + `shift`, computed in double precision (complex: both parts are scaled), or
/// exactly between integers that are not scaled. To integers: rounded to the nearest, ties to even,
/// and clamped to the type's range; NaN becomes 0. To floats, a value beyond the range becomes an
/// infinity. `clipped` (may be null) counts those. Complex to real is not possible: returns false
/// and writes nothing; so does a conversion to complex numbers of doubles.
bool ConvertElements(const ElementType& from, const ElementType& to, double scale, double shift,
                     int64_t count, const void* in, void* out, ClippedElements* clipped = nullptr);
inline bool ConvertElements(const ElementType& from, DType to, double scale, double shift,
                            int64_t count, const void* in, void* out,
                            ClippedElements* clipped = nullptr) {
  return ConvertElements(from, ElementTypeOf(to), scale, shift, count, in, out, clipped);
}

}  // namespace octavo::storage
