#include "server/storage/zarr/number_filter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/math/half.h"

namespace octavo::storage {
namespace {

template <class T>
T Load(const char* in, bool big_endian) {
  char bytes[sizeof(T)];
  std::copy_n(in, sizeof(T), bytes);
  if (big_endian) std::reverse(bytes, bytes + sizeof(T));
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <class T>
void Store(T value, char* out, bool big_endian) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  if (big_endian) std::reverse(bytes, bytes + sizeof(T));
  std::copy_n(bytes, sizeof(T), out);
}

/// Float16, as the float of the same value.
struct Half {};

template <class T>
auto LoadNumber(const char* in, bool big_endian) {
  if constexpr (std::is_same_v<T, Half>)
    return math::HalfToFloat(Load<uint16_t>(in, big_endian));
  else
    return Load<T>(in, big_endian);
}
template <class T>
constexpr int64_t kBytes = std::is_same_v<T, Half> ? 2 : static_cast<int64_t>(sizeof(T));

/// Calls use(T{}) for the C++ type of a NumPy type.
template <class Use>
absl::Status ForType(const NumpyType& type, bool floats, const Use& use) {
  if (type.kind == 'i') {
    switch (type.bytes) {
      case 1: return use(int8_t{});
      case 2: return use(int16_t{});
      case 4: return use(int32_t{});
      case 8: return use(int64_t{});
      default: break;
    }
  } else if (type.kind == 'u') {
    switch (type.bytes) {
      case 1: return use(uint8_t{});
      case 2: return use(uint16_t{});
      case 4: return use(uint32_t{});
      case 8: return use(uint64_t{});
      default: break;
    }
  } else if (type.kind == 'f' && floats) {
    if (type.bytes == 4) return use(float{});
    if (type.bytes == 8) return use(double{});
  }
  return absl::InternalError("a filter of a type that was not refused");
}

/// A number as another type, as NumPy's astype; DataLoss where C++ and NumPy leave the result open.
template <class To, class From>
absl::Status Cast(From value, To* out) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Both bounds are exact as doubles, unlike the largest integer itself.
    const double least = static_cast<double>(std::numeric_limits<To>::min()),
                 beyond = std::ldexp(1.0, std::numeric_limits<To>::digits);
    const double whole = std::trunc(static_cast<double>(value));
    if (!(whole >= least && whole < beyond))
      return absl::DataLossError(absl::StrCat("the value ", value, " is outside of its type"));
    *out = static_cast<To>(whole);
  } else {
    *out = static_cast<To>(value);
  }
  return absl::OkStatus();
}

template <class To, class From>
absl::Status DecodeNumbers(const NumberFilter& filter, const char* in, char* out, int64_t count) {
  const bool swap_in = filter.encoded.big_endian, swap_out = filter.decoded.big_endian;
  if (filter.kind == NumberFilter::Kind::kDelta) {
    // Sums of integers wrap around as NumPy's do; unsigned ones may in C++, too.
    using Sum = typename std::conditional_t<std::is_integral_v<To>, std::make_unsigned<To>,
                                            std::type_identity<To>>::type;
    Sum sum{};
    for (int64_t i = 0; i < count; ++i) {
      const auto step = static_cast<Sum>(LoadNumber<From>(in + i * kBytes<From>, swap_in));
      sum = i == 0 ? step : static_cast<Sum>(sum + step);
      Store<To>(static_cast<To>(sum), out + i * kBytes<To>, swap_out);
    }
    return absl::OkStatus();
  }
  // NumPy computes float32 with float32 and integers with float64.
  using Real = std::conditional_t<std::is_same_v<From, float>, float, double>;
  const auto scale = static_cast<Real>(filter.scale), offset = static_cast<Real>(filter.offset);
  const bool scaled = filter.kind == NumberFilter::Kind::kFixedScaleOffset;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = LoadNumber<From>(in + i * kBytes<From>, swap_in);
    To to{};
    const absl::Status cast =
        scaled ? Cast<To>(static_cast<Real>(value) / scale + offset, &to) : Cast<To>(value, &to);
    if (!cast.ok()) return cast;
    Store<To>(to, out + i * kBytes<To>, swap_out);
  }
  return absl::OkStatus();
}

absl::Status UnpackBits(absl::string_view in, char* out, int64_t bytes) {
  const auto unused = static_cast<int64_t>(static_cast<unsigned char>(in[0]));
  if (unused != (8 - bytes % 8) % 8)
    return absl::DataLossError(
        absl::StrCat("damaged chunk: packbits: ", unused, " unused bits for ", bytes, " elements"));
  for (int64_t i = 0; i < bytes; ++i)
    out[i] = static_cast<char>((in[static_cast<size_t>(1 + i / 8)] >> (7 - i % 8)) & 1);
  return absl::OkStatus();
}

}  // namespace

std::optional<NumpyType> NumpyType::Parse(absl::string_view text) {
  int bytes = 0;
  if (text.size() < 3 || text.size() > 8 || text[2] < '1' || text[2] > '9' ||
      !absl::SimpleAtoi(text.substr(2), &bytes))
    return std::nullopt;
  const NumpyType type{.kind = text[1], .bytes = bytes, .big_endian = text[0] == '>'};
  const bool there = type.kind == 'b'   ? bytes == 1
                     : type.IsInteger() ? bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8
                     : type.kind == 'f' ? bytes == 2 || bytes == 4 || bytes == 8
                     : type.kind == 'c' ? bytes == 8 || bytes == 16
                                        : type.kind == 'V' && bytes <= 4096;
  const bool ordered =
      text[0] == '<' || text[0] == '>' || (text[0] == '|' && (bytes == 1 || type.kind == 'V'));
  if (!there || !ordered) return std::nullopt;
  return type;
}

bool NumberFilter::IsSupported() const {
  const auto number = [](const NumpyType& type) {
    return type.IsInteger() || (type.kind == 'f' && type.bytes >= 4);
  };
  const bool half = encoded.kind == 'f' && encoded.bytes == 2;
  switch (kind) {
    case Kind::kPackBits: return true;
    case Kind::kDelta:
      return number(decoded) && number(encoded) && (encoded.IsInteger() || decoded.kind == 'f');
    case Kind::kCast: return (number(decoded) && (number(encoded) || half)) || decoded == encoded;
    case Kind::kFixedScaleOffset: return number(decoded) && number(encoded);
  }
  return false;
}

int64_t NumberFilter::EncodedBytes(int64_t decoded_bytes) const {
  if (kind == Kind::kPackBits) return 1 + decoded_bytes / 8 + (decoded_bytes % 8 != 0 ? 1 : 0);
  if (decoded_bytes % decoded.bytes != 0) return -1;
  return decoded_bytes / decoded.bytes * encoded.bytes;
}

absl::Status NumberFilter::Decode(absl::string_view in, char* out, int64_t bytes) const {
  if (static_cast<int64_t>(in.size()) != EncodedBytes(bytes))
    return absl::DataLossError(absl::StrCat("damaged chunk: ", in.size(),
                                            " bytes before the filter where it needs ",
                                            EncodedBytes(bytes)));
  if (kind == Kind::kPackBits) return UnpackBits(in, out, bytes);
  if (kind == Kind::kCast && decoded == encoded) {
    std::copy(in.begin(), in.end(), out);
    return absl::OkStatus();
  }
  const int64_t count = bytes / decoded.bytes;
  return ForType(decoded, /*floats=*/true, [&](auto to) {
    using To = decltype(to);
    if (encoded.kind == 'f' && encoded.bytes == 2)
      return DecodeNumbers<To, Half>(*this, in.data(), out, count);
    // A sum of floats is no integer: IsSupported refuses it.
    return ForType(encoded, /*floats=*/true, [&](auto from) {
      return DecodeNumbers<To, decltype(from)>(*this, in.data(), out, count);
    });
  });
}

}  // namespace octavo::storage
