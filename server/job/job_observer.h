#pragma once

#include <memory>
#include <string>

#include "server/model/scan_spec.h"
#include "server/volume/growing_commit.h"

namespace octavo::job {

/// Learns that jobs have changed, and that they want their volumes committed: the one way in which
/// the JobQueue calls what lies above it.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  /// The state, the events or the place in the queue of some job has changed. Any thread of the
  /// queue or of its callers calls, without locks. Must not wait.
  virtual void OnJobsChanged() = 0;
  /// A volume is held, and its job's specification wants it committed with `options`; begins the
  /// commit, and tells the JobQueue of its end. The job's thread calls, without locks.
  virtual void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) = 0;
  /// The same for a volume that its job makes front to back from now on: begins the commit while it
  /// is made. Null: it has to wait for OnCommitWanted.
  virtual std::unique_ptr<volume::GrowingCommit> OnGrowingCommitWanted(
      const volume::GrowingVolume& volume, const model::CommitOptions& options) = 0;
};

}  // namespace octavo::job
