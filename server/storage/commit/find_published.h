#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/storage/commit/commit_store.h"

namespace octavo::storage {

/// The commit of an earlier process whose files are at its destination, by what the files say of
/// themselves: the journal forgets commits that have ended. Nothing if they are not there, or are
/// another commit's. A commit has its final name only when it is whole, so nothing is read again.
/// `destination`: as ResolveDestination takes it, with the extension or without.
std::optional<PublishedCommit> FindPublished(const std::vector<std::string>& roots,
                                             const std::string& commit_id,
                                             const std::string& volume,
                                             const std::string& destination);

}  // namespace octavo::storage
