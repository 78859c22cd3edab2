#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/json.h"

namespace octavo::storage {

/// Reads a regular file that is one JSON text. DataLoss names the file and what is wrong with it,
/// limits included; what cannot be opened is told as the system tells it. Never waits (a pipe is no
/// regular file) and takes no more memory than `limits` allow, whatever the file's size.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});
/// The same of a file that is open; `path` is for messages.
absl::StatusOr<nlohmann::json> ReadJsonFile(int fd, const std::string& path,
                                            const JsonLimits& limits = {});

}  // namespace octavo::storage
