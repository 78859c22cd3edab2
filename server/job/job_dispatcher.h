#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/job/device_turns.h"
#include "server/job/job.h"
#include "server/job/job_entry.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/job/job_workers.h"

namespace octavo::job {

/// Gives devices to jobs. Only one job at a time has the turn of a device. A job gets the next free
/// healthy device in turn on which the ledger grants all memory of its plan, in the order of the
/// JobTable; other jobs overtake one that has to wait for memory. A job that returns to its device
/// comes before the jobs of its priority that have not begun. What changes, changes under the
/// table's lock. Thread-safe. Lock order: the table, then the ledger or the workers.
class JobDispatcher final : public DeviceTurns {
 public:
  JobDispatcher(JobTable& table, JobWorkers& workers, const JobServices& services)
      : table_(table), workers_(workers), services_(services) {
    turns_.resize(static_cast<size_t>(services_.devices.size()));
  }

  /// Adds the job to the table and gives it a device if one is free. Errors as JobTable::Insert.
  absl::StatusOr<JobStatus> Submit(const JobPtr& job);
  /// The job has ended, and its worker may take another one. Its device is free.
  void End(const JobPtr& job);
  /// Gives devices to jobs if memory or a device has become free; cheap when no job waits. Joins
  /// threads that are no longer needed.
  void Tick();
  /// No job begins any more.
  void Stop();

  void GiveUp(const JobPtr& job) override;
  absl::Status Take(const JobPtr& job, const std::stop_token& stop) override;

 private:
  bool Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  bool DispatchOne(bool* changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  bool Begin(const JobPtr& job, bool* changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex());
  JobPtr& TurnOf(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(table_.mutex()) {
    return turns_[static_cast<size_t>(device)];
  }

  JobTable& table_;
  JobWorkers& workers_;
  const JobServices& services_;
  CondVar turn_given_;
  bool ends_ ABSL_GUARDED_BY(table_.mutex()) = false;
  // [device]: the job that may use it; null: it is free
  std::vector<JobPtr> turns_ ABSL_GUARDED_BY(table_.mutex());
  int next_device_ ABSL_GUARDED_BY(table_.mutex()) = 0;
  uint64_t returns_ ABSL_GUARDED_BY(table_.mutex()) = 0;
  // of jobs that never began, until Tick
  std::vector<std::unique_ptr<JobWork>> gone_ ABSL_GUARDED_BY(table_.mutex());
};

}  // namespace octavo::job
