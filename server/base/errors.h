#pragma once

#include <string>

#include "absl/status/status.h"

// Errors about fields of a request.
namespace octavo::base {

/// An error about a field of a nested message: `prefix` is the path of that message ("reprocess.").
absl::Status AtField(const std::string& prefix, const absl::Status& status);

}  // namespace octavo::base
