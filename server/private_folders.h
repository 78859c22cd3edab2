#pragma once

#include "absl/status/status.h"

#include "server/config.h"

namespace octavo {

/// InvalidArgument that names both keys and paths if a folder of the daemon's own (state.dir,
/// spill.dir, history.dir, audit.dir) lies in a root, links resolved: clients could write into it
/// by a commit, or read it by a replay. Looks at the disk.
absl::Status CheckPrivateFolders(const Config& config);

}  // namespace octavo
