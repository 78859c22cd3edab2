#pragma once

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Errors about the fields of a request, all of one form: "<field>: is <value>; allowed <what>"
// (InvalidArgument, BAD_FIELD). Numbers are printed as absl::StrCat prints them.
namespace octavo::inline gpu {

absl::Status FieldNotAllowed(absl::string_view field, const absl::AlphaNum& value,
                             const absl::AlphaNum& allowed);

/// "<field>: is <value>; allowed <lo> to <hi>"
absl::Status FieldOutOfRange(absl::string_view field, const absl::AlphaNum& value,
                             const absl::AlphaNum& lo, const absl::AlphaNum& hi);

absl::Status CheckIntegerRange(absl::string_view field, int64_t value, int64_t lo, int64_t hi);
absl::Status CheckRealRange(absl::string_view field, double value, double lo, double hi);

/// OK, or FieldOutOfRange. A number that is not finite is out of every range. The type of `value`
/// decides whether the bounds are integers or real numbers.
template <class T>
absl::Status InRange(absl::string_view field, T value,
                     std::conditional_t<std::is_floating_point_v<T>, double, int64_t> lo,
                     std::conditional_t<std::is_floating_point_v<T>, double, int64_t> hi) {
  if constexpr (std::is_floating_point_v<T>) {
    return CheckRealRange(field, value, lo, hi);
  } else {
    return CheckIntegerRange(field, value, lo, hi);
  }
}

}  // namespace octavo::inline gpu
