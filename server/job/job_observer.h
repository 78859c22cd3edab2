#pragma once

namespace octavo::job {

/// Learns that jobs have changed: the one way in which the JobQueue calls what lies above it.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  /// The state, the events or the place in the queue of some job has changed. Any thread of the
  /// queue or of its callers calls, without locks. Must not wait.
  virtual void OnJobsChanged() = 0;
};

}  // namespace octavo::job
