#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/base/unique_fd.h"

namespace octavo::storage {

/// Where the recovery puts what it can neither accept nor publish (commit_store.h), below each
/// root: damaged volumes and halves of volumes, for people to look at. What is in it counts as
/// theirs until it has become too much or too old; then the oldest goes.
inline constexpr char kQuarantineName[] = ".octavo-quarantine";

/// Of each root; 0 = no limit. Looked at when the daemon starts, which is when the recovery adds to
/// it.
struct QuarantineLimits {
  int64_t entries = 100;
  int64_t bytes = int64_t{64} << 30;  // as files are long
  double days = 90;                   // since it came
};

struct QuarantineUse {
  int64_t entries = 0, bytes = 0;
};

/// Moves what has a path below a root, out of the folder `from` that it lies in, into the root's
/// quarantine; its new path, or "" where that cannot be done. A quarantine that is no folder of
/// this user's own (a link that somebody else made) is not used, and never pruned.
std::string MoveToQuarantine(const std::vector<std::string>& roots, const UniqueFd& from,
                             const std::string& path);
/// What is in it now.
QuarantineUse UseOfQuarantine(const std::string& root);
/// Removes the oldest until the limits hold; a line for each.
std::vector<std::string> PruneQuarantine(const std::string& root, const QuarantineLimits& limits);
/// Changes with every entry that comes or goes; 0 = there is none.
int64_t StampOfQuarantine(const std::string& root);

}  // namespace octavo::storage
