#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo::storage {

/// The element type of a NumPy array.
struct NumpyType {
  char kind = 'u';  // as NumPy's: b bool, i, u integers, f float, c complex, V raw bytes
  int64_t bytes = 1;
  bool big_endian = false;

  bool IsInteger() const { return kind == 'i' || kind == 'u'; }
  bool operator==(const NumpyType&) const = default;
  /// "<u2", ">f4", "|u1", "|b1", "|V3"; "|" only where there is no byte order. Nothing for other
  /// texts and types.
  static std::optional<NumpyType> Parse(absl::string_view text);
};

/// A filter of Zarr v2 that works on numbers, as numcodecs defines it. Arrays are bytes in the
/// order of the memory; `decoded` and `encoded` are their types.
struct NumberFilter {
  enum class Kind : uint8_t {
    kDelta,             // differences of neighbours, the first one as it is
    kCast,              // "astype" and "quantize": another type
    kFixedScaleOffset,  // (x - offset) * scale
    kPackBits           // eight bools in a byte, behind a byte that counts the unused bits
  };
  Kind kind = Kind::kCast;
  NumpyType decoded, encoded;
  double scale = 1, offset = 0;  // of kFixedScaleOffset

  /// Whether this filter's arithmetic is implemented for its types: integers of any width, float32
  /// and float64; float16 is read, but only kept or widened.
  bool IsSupported() const;
  /// Bytes before and after encoding. -1 if `decoded_bytes` is no multiple of the element.
  int64_t EncodedBytes(int64_t decoded_bytes) const;
  /// Decodes to exactly `bytes` bytes. DataLoss if `in` has the wrong size, or a value that the
  /// decoded type does not have.
  absl::Status Decode(absl::string_view in, char* out, int64_t bytes) const;
};

}  // namespace octavo::storage
