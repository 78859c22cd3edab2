#include "server/storage/io/element_type.h"

#include <algorithm>
#include <complex>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/math/stored_element.h"

namespace octavo::storage {
namespace {

using Kind = ElementType::Kind;

template <size_t n>
void SwapEach(char* p, int64_t count) {
  for (int64_t i = 0; i < count; ++i, p += n) std::reverse(p, p + n);
}

template <class From, class To>
void Convert(double scale, double shift, int64_t count, const void* in, void* out) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<char*>(out);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    const To made = math::RoundedTo<To>(math::Scaled(math::ValueOf<double>(value), scale, shift));
    std::memcpy(to + i * static_cast<int64_t>(sizeof made), &made, sizeof made);
  }
}

/// To complex: real numbers have no imaginary part.
template <class From>
void ConvertToComplex(double scale, double shift, int64_t count, const void* in, void* out) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<float*>(out);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    to[2 * i] = static_cast<float>(math::Scaled(math::ValueOf<double>(value), scale, shift));
    to[2 * i + 1] = 0;
  }
}

template <class From>
void ConvertTo(DType to, double scale, double shift, int64_t count, const void* in, void* out) {
  switch (to) {
    case DType::kU8: return Convert<From, uint8_t>(scale, shift, count, in, out);
    case DType::kI8: return Convert<From, int8_t>(scale, shift, count, in, out);
    case DType::kU16: return Convert<From, uint16_t>(scale, shift, count, in, out);
    case DType::kI16: return Convert<From, int16_t>(scale, shift, count, in, out);
    case DType::kF16: return Convert<From, math::Half>(scale, shift, count, in, out);
    case DType::kF32: return Convert<From, float>(scale, shift, count, in, out);
    case DType::kF64: return Convert<From, double>(scale, shift, count, in, out);
    case DType::kC64: return ConvertToComplex<From>(scale, shift, count, in, out);
  }
}

template <class From>
void ConvertComplex(double scale, double shift, int64_t count, const void* in, void* out) {
  const auto* from = static_cast<const char*>(in);
  auto* to = static_cast<float*>(out);
  for (int64_t i = 0; i < 2 * count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    to[i] = static_cast<float>(scale * static_cast<double>(value) + (i % 2 == 0 ? shift : 0));
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

bool ConvertElements(const ElementType& from, DType to, double scale, double shift, int64_t count,
                     const void* in, void* out) {
  if (from == ElementTypeOf(to) && scale == 1 && shift == 0) {
    std::memcpy(out, in, static_cast<size_t>(count * from.bytes));
    return true;
  }
  if (from.kind == Kind::kComplex) {
    if (to != DType::kC64) return false;
    from.bytes == 8 ? ConvertComplex<float>(scale, shift, count, in, out)
                    : ConvertComplex<double>(scale, shift, count, in, out);
    return true;
  }
  const auto convert = [&]<class From>(From) { ConvertTo<From>(to, scale, shift, count, in, out); };
  const bool is_signed = from.kind == Kind::kSigned;
  switch (from.bytes) {
    case 1: is_signed ? convert(int8_t{}) : convert(uint8_t{}); break;
    case 2:
      from.kind == Kind::kFloat ? convert(math::Half{})
      : is_signed               ? convert(int16_t{})
                                : convert(uint16_t{});
      break;
    case 4:
      from.kind == Kind::kFloat ? convert(float{})
      : is_signed               ? convert(int32_t{})
                                : convert(uint32_t{});
      break;
    default:
      from.kind == Kind::kFloat ? convert(double{})
      : is_signed               ? convert(int64_t{})
                                : convert(uint64_t{});
      break;
  }
  return true;
}

}  // namespace octavo::storage
