#pragma once

#include <string>

#include "absl/status/status.h"

// Errors of files of projections, and of every HDF5 file. They name the file without folders, and a
// dataset in it.
namespace octavo::storage {

/// InvalidArgument BAD_PROJECTIONS: "<file>: <dataset> <value>; allowed <allowed>".
absl::Status BadProjections(const std::string& path, const std::string& dataset,
                            const std::string& value, const std::string& allowed);
/// DataLoss DAMAGED_FILE: "<file>: <dataset> <what>".
absl::Status DamagedProjections(const std::string& path, const std::string& dataset,
                                const std::string& what);
/// Aborted REPLACED: the file that was opened has no name any more.
absl::Status ReplacedProjections(const std::string& path);
/// Unimplemented UNKNOWN_COMPRESSION.
absl::Status UnknownCompression(const std::string& path, const std::string& dataset,
                                const std::string& what);

}  // namespace octavo::storage
