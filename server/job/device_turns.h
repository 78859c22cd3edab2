#pragma once

#include <stop_token>

#include "absl/status/status.h"

#include "server/job/job_entry.h"

namespace octavo::job {

/// The turns of the devices, as a running job sees them: only one job at a time has the turn of a
/// device.
class DeviceTurns {
 public:
  virtual ~DeviceTurns() = default;
  /// The job gives up the turn of its device, so that another one may run there.
  virtual void GiveUp(const JobPtr& job) = 0;
  /// Waits until the job has the turn of its device again. Cancelled if `stop` is requested first.
  virtual absl::Status Take(const JobPtr& job, const std::stop_token& stop) = 0;
};

}  // namespace octavo::job
