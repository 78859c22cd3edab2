#pragma once

#include <string>

#include "absl/status/status.h"

// Errors about fields of a request, and what errors say.
namespace octavo::base {

/// An error about a field of a nested message: `prefix` is the path of that message ("reprocess.").
absl::Status AtField(const std::string& prefix, const absl::Status& status);

/// An error about the options of a commit ("options.destination") as one about the field of a
/// request that has them ("retention.auto_commit"). An invalid option without a field is the
/// destination.
absl::Status AtCommitOptions(const std::string& field, const absl::Status& status);

/// NotFound (NO_SCAN, NO_JOB) for a name that is in the field `parent`.
absl::Status NoParent(const std::string& name);

/// Whether the same may succeed later without anything else being done: the error's number
/// "retryable".
bool IsRetryable(const absl::Status& status);

}  // namespace octavo::base
