#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/json.h"

namespace octavo::storage {

/// Reads a regular file that is one JSON text. DataLoss names the file and the problem, also an
/// exceeded limit; a failure to open it gives the system's error. Never blocks (a pipe is no
/// regular file) and uses no more memory than `limits` allow, whatever the file's size.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});
/// The same for an open file; `path` is for messages.
absl::StatusOr<nlohmann::json> ReadJsonFile(int fd, const std::string& path,
                                            const JsonLimits& limits = {});

}  // namespace octavo::storage
