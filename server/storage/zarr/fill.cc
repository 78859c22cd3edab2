// Fill values of Zarr arrays.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"
#include "server/storage/zarr/metadata.h"

namespace octavo::storage {
namespace {

using nlohmann::json;
constexpr char kName[] = "fill_value";

/// The bits of the half-precision number nearest to a finite `value`, ties to even; infinity beyond
/// the largest.
uint64_t HalfBits(double value) {
  const uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0) return sign;
  int exponent = 0;
  std::frexp(value, &exponent);                    // |value| = m 2^exponent, 1/2 <= m < 1
  const int least = std::max(exponent - 11, -24);  // of the last bit
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(std::fabs(value), -least)));
  // Subnormal numbers count units of 2^-24; above, the 11th bit is implied. A carry increments the
  // exponent.
  const uint64_t bits = units + (static_cast<uint64_t>(least + 24) << 10);
  return sign | std::min<uint64_t>(bits, 0x7C00);
}

template <class T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

/// The bits of a float of the given number of bytes.
absl::StatusOr<uint64_t> FloatBits(const json& fill, const std::string& name, int64_t bytes,
                                   ZarrVersion version) {
  const auto bits_of = [&](double value) {
    if (bytes == 2)
      return std::isnan(value)   ? uint64_t{0x7E00}
             : std::isinf(value) ? uint64_t{value < 0 ? 0xFC00u : 0x7C00u}
                                 : HalfBits(value);
    return bytes == 4 ? BitsOf(static_cast<float>(value)) : BitsOf(value);
  };
  if (fill.is_number()) {
    const double value = fill.get<double>();
    const bool stays = bytes == 2   ? std::fabs(value) < 65520
                       : bytes == 4 ? std::isfinite(static_cast<float>(value))
                                    : std::isfinite(value);
    if (!stays)
      return BadValue(name, fill,
                      absl::StrCat("are numbers that a float of ", 8 * bytes, " bits can hold"));
    return bits_of(value);
  }
  if (fill.is_string()) {
    const auto& text = fill.get_ref<const std::string&>();
    if (text == "NaN") return bits_of(std::numeric_limits<double>::quiet_NaN());
    if (text == "Infinity") return bits_of(std::numeric_limits<double>::infinity());
    if (text == "-Infinity") return bits_of(-std::numeric_limits<double>::infinity());
    uint64_t bits = 0;
    if (version == ZarrVersion::kV3 && absl::StartsWith(text, "0x") &&
        std::ssize(text) == 2 + 2 * bytes &&
        std::all_of(text.begin() + 2, text.end(),
                    [](unsigned char c) { return absl::ascii_isxdigit(c); }) &&
        absl::SimpleHexAtoi(text, &bits))
      return bits;
  }
  return BadValue(
      name, fill,
      absl::StrCat("are numbers, \"NaN\", \"Infinity\", \"-Infinity\"",
                   version == ZarrVersion::kV3
                       ? absl::StrCat(" and \"0x\" with ", 2 * bytes, " hexadecimal digits")
                       : ""));
}

absl::StatusOr<uint64_t> IntegerBits(const json& fill, int64_t bytes, bool is_signed,
                                     ZarrVersion version) {
  const int bits = static_cast<int>(8 * bytes);
  const auto least = static_cast<int64_t>(is_signed ? ~uint64_t{0} << (bits - 1) : 0);
  const uint64_t most = ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
  if (fill.is_number_unsigned() && fill.get<uint64_t>() <= most) return fill.get<uint64_t>();
  if (fill.is_number_integer() && !fill.is_number_unsigned()) {
    const auto value = fill.get<int64_t>();
    if (value < 0 ? value >= least : static_cast<uint64_t>(value) <= most)
      return static_cast<uint64_t>(value);
  }
  if (version == ZarrVersion::kV2 && fill.is_number_float()) {
    // Up to 2^53 a double is the integer that was written.
    const double value = fill.get<double>();
    if (value == std::floor(value) && std::fabs(value) <= 0x1p53 &&
        value >= static_cast<double>(least) && (value <= 0 || static_cast<uint64_t>(value) <= most))
      return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  return BadValue(kName, fill, absl::StrCat("are integers from ", least, " to ", most));
}

/// Raw bytes: v3 has an array of numbers, v2 base64.
absl::Status RawFill(const json& fill, ZarrVersion version, std::string* out) {
  if (version == ZarrVersion::kV2) {
    std::string bytes;
    if (fill.is_string() && absl::Base64Unescape(fill.get_ref<const std::string&>(), &bytes) &&
        bytes.size() == out->size()) {
      *out = bytes;
      return absl::OkStatus();
    }
    return BadValue(kName, fill, absl::StrCat("are null and base64 of ", out->size(), " bytes"));
  }
  if (!fill.is_array() || fill.size() != out->size())
    return BadValue(kName, fill, absl::StrCat("are arrays of ", out->size(), " bytes"));
  for (size_t i = 0; i < fill.size(); ++i) {
    int64_t byte = 0;
    OCTAVO_RETURN_IF_ERROR(ReadInteger(fill[i], absl::StrCat(kName, "[", i, "]"), 0, 255, &byte));
    (*out)[i] = static_cast<char>(byte);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ZarrFill(const std::string& data_type, bool big_endian,
                                     const json& fill, ZarrVersion version) {
  const int64_t size = ZarrElementBytes(data_type);
  std::string out(static_cast<size_t>(size), '\0');
  if (version == ZarrVersion::kV2 && fill.is_null()) return out;
  const auto put = [&](int64_t at, uint64_t bits, int64_t bytes) {
    std::memcpy(out.data() + at, &bits, static_cast<size_t>(bytes));
    if (big_endian) std::reverse(out.data() + at, out.data() + at + bytes);
  };
  if (data_type[0] == 'r') {
    OCTAVO_RETURN_IF_ERROR(RawFill(fill, version, &out));
  } else if (data_type == "bool") {
    bool value = false;
    OCTAVO_RETURN_IF_ERROR(ReadValue(fill, kName, &value));
    put(0, value ? 1 : 0, 1);
  } else if (absl::StartsWith(data_type, "complex")) {
    if (!fill.is_array() || fill.size() != 2)
      return BadValue(kName, fill, "are arrays of 2: the real and the imaginary part");
    for (size_t part = 0; part < 2; ++part) {
      OCTAVO_ASSIGN_OR_RETURN(
          const uint64_t bits,
          FloatBits(fill[part], absl::StrCat(kName, "[", part, "]"), size / 2, version));
      put(static_cast<int64_t>(part) * size / 2, bits, size / 2);
    }
  } else if (absl::StartsWith(data_type, "float")) {
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t bits, FloatBits(fill, kName, size, version));
    put(0, bits, size);
  } else {
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t bits,
                            IntegerBits(fill, size, data_type[0] == 'i', version));
    put(0, bits, size);
  }
  return out;
}

}  // namespace octavo::storage
