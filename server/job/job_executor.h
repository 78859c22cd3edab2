#pragma once

#include <memory>

#include "absl/status/status.h"

#include "gpu/device/device.h"
#include "server/job/device_turns.h"
#include "server/job/job_entry.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"

namespace octavo::job {

/// Runs one job from its memory to its final state. Stateless; each worker calls it for the job
/// that it was given.
class JobExecutor {
 public:
  /// All must outlive the executor.
  JobExecutor(const JobServices& services, JobTable& table, DeviceTurns& turns)
      : services_(services), table_(table), turns_(turns) {}

  /// Runs the job on its device, publishes its results, frees its memory and sets how it ended.
  /// `stream`: the worker's; made here by the first job.
  void Execute(const JobPtr& job, Stream& stream);

 private:
  /// Hands out the buffer that the job has made, if any. After an error there is none.
  absl::Status PublishBuffer(JobEntry& job);
  /// Sets and logs the final state.
  void Conclude(JobEntry& job, const absl::Status& status);

  const JobServices& services_;
  JobTable& table_;
  DeviceTurns& turns_;
};

}  // namespace octavo::job
