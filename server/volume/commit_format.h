#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "server/storage/formats/ending.h"

namespace octavo::volume {

/// The format of a commit: from the extension of its destination, else the requested format, else
/// OME-Zarr. InvalidArgument as in storage::FormatFor.
inline absl::StatusOr<storage::Format> FormatOfCommit(const std::string& field,
                                                      const std::string& destination,
                                                      std::optional<storage::Format> asked) {
  return storage::FormatFor(field, destination, asked);
}

}  // namespace octavo::volume
