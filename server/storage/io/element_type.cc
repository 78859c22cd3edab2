#include "server/storage/io/element_type.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/math/half.h"

namespace octavo::storage {
namespace {

using Kind = ElementType::Kind;

/// A half-precision number by its bits.
struct HalfBits {
  uint16_t bits;
};

template <size_t n>
void SwapEach(char* p, int64_t count) {
  for (int64_t i = 0; i < count; ++i, p += n) std::reverse(p, p + n);
}

template <class T>
double ValueOf(T value) {
  if constexpr (std::is_same_v<T, HalfBits>) {
    return static_cast<double>(math::HalfToFloat(value.bits));
  } else {
    return static_cast<double>(value);
  }
}

/// Whether a value lies below (-1) or above (1) the range of T when it is rounded; no NaN.
template <class T>
int BeyondRange(double rounded) {
  if constexpr (std::is_integral_v<T>) {
    constexpr auto lowest = static_cast<double>(std::numeric_limits<T>::lowest()),
                   highest = static_cast<double>(std::numeric_limits<T>::max());
    if (rounded < lowest) return -1;
    // Of 64 bits the largest integers are no doubles: `highest` is one more.
    return (sizeof(T) == 8 ? rounded >= highest : rounded > highest) ? 1 : 0;
  } else if constexpr (std::is_same_v<T, HalfBits>) {
    // What rounds to 65504 is below the middle between that and 65536.
    return rounded >= 65520 ? 1 : rounded <= -65520 ? -1 : 0;
  } else {
    const auto made = static_cast<T>(rounded);
    return std::isfinite(made) ? 0 : made > 0 ? 1 : -1;
  }
}

template <class T>
T Rounded(double value, ClippedElements* clipped) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) {
      ++clipped->nan;
      return 0;
    }
    value = std::nearbyint(value);
    if (const int beyond = BeyondRange<T>(value); beyond != 0) {
      ++(beyond < 0 ? clipped->below : clipped->above);
      return beyond < 0 ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    }
    return static_cast<T>(value);
  } else {
    if (std::isfinite(value)) {
      const int beyond = BeyondRange<T>(value);
      if (beyond != 0) ++(beyond < 0 ? clipped->below : clipped->above);
    }
    if constexpr (std::is_same_v<T, HalfBits>) {
      return {math::FloatToHalf(static_cast<float>(value))};
    } else {
      return static_cast<T>(value);
    }
  }
}

/// Between integers without doubles, which do not hold all of 64 bits.
template <class To, class From>
To Clamped(From value, ClippedElements* clipped) {
  if (std::in_range<To>(value)) return static_cast<To>(value);
  const bool below = std::cmp_less(value, std::numeric_limits<To>::lowest());
  ++(below ? clipped->below : clipped->above);
  return below ? std::numeric_limits<To>::lowest() : std::numeric_limits<To>::max();
}

template <class From, class To>
void Convert(double scale, double shift, int64_t count, const void* in, void* out,
             ClippedElements* clipped) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<char*>(out);
  const auto each = [&](const auto& make) {
    for (int64_t i = 0; i < count; ++i) {
      From value;
      std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
      const To made = make(value);
      std::memcpy(to + i * static_cast<int64_t>(sizeof made), &made, sizeof made);
    }
  };
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    if (scale == 1 && shift == 0)
      return each([&](From value) { return Clamped<To>(value, clipped); });
  }
  each([&](From value) { return Rounded<To>(scale * ValueOf(value) + shift, clipped); });
}

/// To complex: real numbers have no imaginary part.
template <class From>
void ConvertToComplex(double scale, double shift, int64_t count, const void* in, void* out,
                      ClippedElements* clipped) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<float*>(out);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    to[2 * i] = Rounded<float>(scale * ValueOf(value) + shift, clipped);
    to[2 * i + 1] = 0;
  }
}

template <class From>
bool ConvertTo(const ElementType& to, double scale, double shift, int64_t count, const void* in,
               void* out, ClippedElements* clipped) {
  const auto as = [&]<class To>(To) {
    Convert<From, To>(scale, shift, count, in, out, clipped);
    return true;
  };
  const bool is_signed = to.kind == Kind::kSigned, is_float = to.kind == Kind::kFloat;
  if (to.kind == Kind::kComplex) {
    if (to.bytes != 8) return false;
    ConvertToComplex<From>(scale, shift, count, in, out, clipped);
    return true;
  }
  switch (to.bytes) {
    case 1: return is_signed ? as(int8_t{}) : as(uint8_t{});
    case 2: return is_float ? as(HalfBits{}) : is_signed ? as(int16_t{}) : as(uint16_t{});
    case 4: return is_float ? as(float{}) : is_signed ? as(int32_t{}) : as(uint32_t{});
    default: return is_float ? as(double{}) : is_signed ? as(int64_t{}) : as(uint64_t{});
  }
}

template <class From>
void ConvertComplex(double scale, double shift, int64_t count, const void* in, void* out,
                    ClippedElements* clipped) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<float*>(out);
  for (int64_t i = 0; i < 2 * count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    to[i] = Rounded<float>(scale * static_cast<double>(value) + (i % 2 == 0 ? shift : 0), clipped);
  }
}

}  // namespace

std::string ElementType::Name() const {
  return absl::StrCat(kind == Kind::kUnsigned ? "u"
                      : kind == Kind::kSigned ? "i"
                      : kind == Kind::kFloat  ? "f"
                                              : "c",
                      8 * bytes);
}

std::optional<ElementType> CheckedElementType(Kind kind, int64_t bytes) {
  const bool fine = kind == Kind::kComplex ? bytes == 8 || bytes == 16
                    : kind == Kind::kFloat ? bytes == 2 || bytes == 4 || bytes == 8
                                           : bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  if (!fine) return std::nullopt;
  return ElementType{.kind = kind, .bytes = bytes};
}

std::optional<ElementType> ElementTypeNamed(absl::string_view name) {
  int bits = 0;
  if (name.size() < 2 || !absl::SimpleAtoi(name.substr(1), &bits) || bits % 8 != 0)
    return std::nullopt;
  const auto type = name[0] == 'u'   ? CheckedElementType(Kind::kUnsigned, bits / 8)
                    : name[0] == 'i' ? CheckedElementType(Kind::kSigned, bits / 8)
                    : name[0] == 'f' ? CheckedElementType(Kind::kFloat, bits / 8)
                    : name[0] == 'c' ? CheckedElementType(Kind::kComplex, bits / 8)
                                     : std::nullopt;
  return type.has_value() && type->Name() == name ? type : std::nullopt;
}

ElementType ElementTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8: return {Kind::kUnsigned, 1};
    case DType::kI8: return {Kind::kSigned, 1};
    case DType::kU16: return {Kind::kUnsigned, 2};
    case DType::kI16: return {Kind::kSigned, 2};
    case DType::kF16: return {Kind::kFloat, 2};
    case DType::kF32: return {Kind::kFloat, 4};
    case DType::kF64: return {Kind::kFloat, 8};
    case DType::kC64: return {Kind::kComplex, 8};
  }
  return {};
}

std::optional<DType> ExactVolumeType(const ElementType& type) {
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kF16,
                            DType::kF32, DType::kF64, DType::kC64}) {
    if (ElementTypeOf(dtype) == type) return dtype;
  }
  const bool integer = type.kind == Kind::kUnsigned || type.kind == Kind::kSigned;
  return integer && type.bytes == 4 ? std::optional(DType::kF64) : std::nullopt;
}

std::optional<Scalar> ElementScalar(const ElementType& type) {
  const std::string name = type.Name();
  for (int one = 1; one <= kMostScalar; ++one) {
    if (name == NameOf(static_cast<Scalar>(one))) return static_cast<Scalar>(one);
  }
  return std::nullopt;
}

void SwapBytes(const ElementType& type, int64_t count, void* data) {
  auto* p = static_cast<char*>(data);
  if (type.kind == Kind::kComplex) count *= 2;
  switch (type.number_bytes()) {
    case 2: return SwapEach<2>(p, count);
    case 4: return SwapEach<4>(p, count);
    case 8: return SwapEach<8>(p, count);
    default: return;
  }
}

bool ConvertElements(const ElementType& from, const ElementType& to, double scale, double shift,
                     int64_t count, const void* in, void* out, ClippedElements* clipped) {
  if (from == to && scale == 1 && shift == 0) {
    std::memcpy(out, in, static_cast<size_t>(count * from.bytes));
    return true;
  }
  ClippedElements uncounted;
  if (clipped == nullptr) clipped = &uncounted;
  if (from.kind == Kind::kComplex) {
    if (to.kind != Kind::kComplex || to.bytes != 8) return false;
    from.bytes == 8 ? ConvertComplex<float>(scale, shift, count, in, out, clipped)
                    : ConvertComplex<double>(scale, shift, count, in, out, clipped);
    return true;
  }
  const auto convert = [&]<class From>(From) {
    return ConvertTo<From>(to, scale, shift, count, in, out, clipped);
  };
  const bool is_signed = from.kind == Kind::kSigned, is_float = from.kind == Kind::kFloat;
  switch (from.bytes) {
    case 1: return is_signed ? convert(int8_t{}) : convert(uint8_t{});
    case 2:
      return is_float ? convert(HalfBits{}) : is_signed ? convert(int16_t{}) : convert(uint16_t{});
    case 4:
      return is_float ? convert(float{}) : is_signed ? convert(int32_t{}) : convert(uint32_t{});
    default:
      return is_float ? convert(double{}) : is_signed ? convert(int64_t{}) : convert(uint64_t{});
  }
}

}  // namespace octavo::storage
