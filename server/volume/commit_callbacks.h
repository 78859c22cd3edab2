#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "server/storage/commit/commit_store.h"

namespace octavo::volume {

/// Progress of a commit, as passed to `on_progress`.
struct CommitProgress {
  int64_t done_bytes = 0, total_bytes = 0, disk_bytes = 0;
  double seconds = 0;
  std::string stage;  // "preparing", "writing", "syncing", "done"
};
struct CommitCallbacks {
  std::function<void(const CommitProgress&)>
      on_progress;  // from an engine thread, at most ~10 a second
  std::function<void(absl::StatusOr<storage::CommitOutcome>)>
      on_done;  // exactly once, from an engine thread
};

}  // namespace octavo::volume
