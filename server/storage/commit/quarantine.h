#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// The folder below each root for files that the recovery can neither accept nor publish
/// (commit_store.h): damaged volumes and halves of volumes, for users to inspect. The server keeps
/// them until there are too many or they are too old; then it removes the oldest.
inline constexpr char kQuarantineName[] = ".octavo-quarantine";

/// Limits of each root; 0 = no limit. Applied when the daemon starts, because only the recovery
/// adds files.
struct QuarantineLimits {
  int64_t entries = 100;
  int64_t bytes = int64_t{64} << 30;  // sum of the files' lengths
  double days = 90;                   // since a file arrived
};

struct QuarantineUse {
  int64_t entries = 0, bytes = 0;
};

/// Moves a file or folder below a root from its folder `from` into the root's quarantine; returns
/// its new path, or "" if that fails. A quarantine that is not this user's own folder (for example
/// another user's link) is neither used nor pruned.
std::string MoveToQuarantine(const std::vector<std::string>& roots, const UniqueFd& from,
                             const std::string& path);
/// The present contents.
QuarantineUse UseOfQuarantine(const std::string& root);
/// Removes the oldest entries until the limits hold; returns a line for each.
std::vector<std::string> PruneQuarantine(const std::string& root, const QuarantineLimits& limits);
/// Changes with every entry added or removed; 0 = there is no quarantine.
int64_t StampOfQuarantine(const std::string& root);

}  // namespace octavo::storage
