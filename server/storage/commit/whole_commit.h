#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// Whether what is at a destination that is taken is a commit that was published whole: its
/// manifest (or the metadata beside a single file) is there, and each file that it names, with the
/// size that it names. Nothing is read again, so changed bytes are not found. OK, or DataLoss,
/// which says what is missing: the files are another program's, or were cut short or removed in
/// part. `destination`, `options`: as CommitStore::Check has them.
absl::Status CheckWhole(const std::vector<std::string>& roots, const std::string& destination,
                        const WriterOptions& options);

/// What the metadata of a commit at a destination say about how it was made
/// (VolumeMeta::processing). DataLoss if they cannot be read, or do not say it. Arguments as
/// CheckWhole has them.
absl::StatusOr<nlohmann::json> ReadProcessing(const std::vector<std::string>& roots,
                                              const std::string& destination,
                                              const WriterOptions& options);

}  // namespace octavo::storage
