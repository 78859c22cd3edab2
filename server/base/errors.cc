#include "server/base/errors.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::base {

absl::Status AtField(const std::string& prefix, const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  if (status.ok() || info.field.empty()) return status;
  return WithInfo(
      absl::Status(status.code(), absl::StrCat(prefix, status.message())),
      {.reason = info.reason, .field = absl::StrCat(prefix, info.field), .numbers = info.numbers});
}

absl::Status InRange(const std::string& field, int64_t value, int64_t lo, int64_t hi) {
  if (value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}

absl::Status InRange(const std::string& field, double value, double lo, double hi) {
  if (std::isfinite(value) && value >= lo && value <= hi) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; allowed ", lo, " to ", hi));
}

}  // namespace octavo::base
