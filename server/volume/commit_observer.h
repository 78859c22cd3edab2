#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "server/model/work_progress.h"
#include "server/storage/commit/commit_store.h"

namespace octavo::volume {

/// A commit that has begun, or ended.
struct CommitNews {
  std::string volume;  // or buffers/<id>
  std::string title, scan;
  std::string job;          // that made the volume; empty = none
  std::string destination;  // as asked, with the names filled in
  std::string commit_id;    // as CommitStore::Begin has it
  model::WorkOrigin origin;
  TimePoint begun;
};

/// Learns of commits: the one way in which the Committer calls what lies above it. Any thread,
/// without locks. Must not wait.
class CommitObserver {
 public:
  virtual ~CommitObserver() = default;
  virtual void OnCommitBegun(const CommitNews& commit) = 0;
  /// Once for each commit that has begun.
  virtual void OnCommitEnded(const CommitNews& commit,
                             const absl::StatusOr<storage::CommitOutcome>& outcome) = 0;
};

}  // namespace octavo::volume
