#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "server/storage/formats/ending.h"

namespace octavo::volume {

/// The format of a commit: what the ending of its destination says, else what is asked for, else
/// OME-Zarr. InvalidArgument as of storage::FormatFor.
inline absl::StatusOr<storage::Format> FormatOfCommit(const std::string& field,
                                                      const std::string& destination,
                                                      std::optional<storage::Format> asked) {
  return storage::FormatFor(field, destination, asked);
}

}  // namespace octavo::volume
