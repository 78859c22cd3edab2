#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Errors about what a file holds. All name the file (as the client calls it), the place in it, what
// is there, and what is allowed.
namespace octavo::storage {

/// InvalidArgument UNSUPPORTED_FILE: "<file>: <place> is <value>; allowed <allowed>". The file is
/// sound, but its content is of a kind that is not read. The numbers have place, value and allowed.
absl::Status UnsupportedFile(absl::string_view file, absl::string_view place,
                             const absl::AlphaNum& value, absl::string_view allowed);

/// DataLoss DAMAGED_FILE: "<file>: <place> <what>". The file contradicts itself or ends too early.
absl::Status DamagedFile(absl::string_view file, absl::string_view place, absl::string_view what);

/// Unimplemented UNKNOWN_COMPRESSION: "<file>: <place> is <value>; allowed <allowed>".
absl::Status UnknownFileCompression(absl::string_view file, absl::string_view place,
                                    const absl::AlphaNum& value, absl::string_view allowed);

}  // namespace octavo::storage
