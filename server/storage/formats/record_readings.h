#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"

// Guesses the type of a raw file from its bytes, independent of the declared type.
namespace octavo::storage {

/// A way to read bytes as samples: the raw types that a file can be replayed as, and others that
/// are mistaken for them.
enum class Reading : uint8_t {
  kU8,
  kU16,
  kI16,
  kF32,
  kLowFirst12,
  kHighFirst12,
  kU16Big,
  kI16Big,
  kF32Big,
  kI32,
  kI32Big,
  kF64,
  kF64Big
};

Reading ReadingOf(DType raw_type, math::Packing packing);
/// Its name in sentences: "u16", "big-endian u16", "32-bit integers".
const char* NameOf(Reading reading);
/// Whether there is a raw_type for it.
bool CanBeReplayed(Reading reading);

/// The samples of `bytes` as integers; of a reading of 8 or 16 bits, or 12 packed ones.
std::vector<int32_t> IntegersOf(absl::string_view bytes, Reading reading);

/// The reading that fits `bytes` clearly better than `asked`; nothing if `asked` fits or the data
/// do not tell. `channels` are interleaved; `samples` counts the samples of a record over all
/// channels.
std::optional<Reading> LooksLike(absl::string_view bytes, Reading asked, int64_t channels,
                                 int64_t samples);

}  // namespace octavo::storage
