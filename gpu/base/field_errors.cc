#include "gpu/base/field_errors.h"

#include <cmath>

#include "gpu/base/status.h"

namespace octavo::inline gpu {

absl::Status FieldNotAllowed(absl::string_view field, const absl::AlphaNum& value,
                             const absl::AlphaNum& allowed) {
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", allowed));
}

absl::Status FieldOutOfRange(absl::string_view field, const absl::AlphaNum& value,
                             const absl::AlphaNum& lo, const absl::AlphaNum& hi) {
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}

absl::Status CheckIntegerRange(absl::string_view field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return FieldOutOfRange(field, value, lo, hi);
}

absl::Status CheckRealRange(absl::string_view field, double value, double lo, double hi) {
  if (std::isfinite(value) && value >= lo && value <= hi) return absl::OkStatus();
  return FieldOutOfRange(field, value, lo, hi);
}

}  // namespace octavo::inline gpu
