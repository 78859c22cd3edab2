#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

// Errors about fields of a request.
namespace octavo::base {

/// An error about a field of a nested message: `prefix` is the path of that message ("reprocess.").
absl::Status AtField(const std::string& prefix, const absl::Status& status);

/// OK, or InvalidArgument that names the field, the value and the allowed values. A number that is
/// not finite is out of every range.
absl::Status InRange(const std::string& field, int64_t value, int64_t lo, int64_t hi);
absl::Status InRange(const std::string& field, double value, double lo, double hi);

}  // namespace octavo::base
