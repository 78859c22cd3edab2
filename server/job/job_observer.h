#pragma once

#include <string>

#include "server/model/scan_spec.h"

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
};

}  // namespace octavo::job
