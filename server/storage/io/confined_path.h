#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Paths that clients name, kept below the folders that the server's configuration allows.
namespace octavo::storage {

/// A path inside one of the roots, links resolved.
struct ConfinedPath {
  std::string path, root;
};

/// The file or folder `path` (relative to a root, or absolute inside of one). Errors name `field`
/// and the roots: InvalidArgument (OUTSIDE_ROOTS), NotFound (NO_FILE), PermissionDenied
/// (NO_ACCESS), FailedPrecondition (no roots). The error never reveals whether a file outside
/// exists.
absl::StatusOr<ConfinedPath> ConfinePath(const std::string& path,
                                         const std::vector<std::string>& roots,
                                         const std::string& field);

absl::Status OutsideRoots(const std::string& field, const std::string& path,
                          const std::vector<std::string>& roots);
absl::Status NoAccess(const std::string& field, const std::string& path, const std::string& what);

}  // namespace octavo::storage
