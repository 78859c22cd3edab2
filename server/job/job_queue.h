#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_observer.h"
#include "server/memory/device_set.h"
#include "server/memory/ledger.h"
#include "server/model/stats.h"
#include "server/publish/publisher.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::job {

/// Manages jobs from their submission to their volumes. Only one job at a time has the turn of a
/// device. Order: higher priorities first; at equal priority the groups take turns, each in the
/// order of submission. A job gets the next free healthy device in turn on which the ledger grants
/// all memory of its plan; other jobs overtake one that has to wait for memory. A job that waits
/// for its input gives up its turn (JobRun::WithoutDevice) but not its memory; when it returns, it
/// comes before the jobs of its priority that have not begun. Thread-safe; calls are short.
class JobQueue {
 public:
  struct Context {
    memory::DeviceSet devices;
    memory::Ledger* ledger = nullptr;
    volume::VolumeStore* volumes = nullptr;
    publish::Publisher* publisher = nullptr;
    const Clock* clock = nullptr;
    std::string server_id;
    volume::Spiller* spiller = nullptr;  // stores results that stay on disk; null: there are none
    JobObserver* observer = nullptr;
  };
  explicit JobQueue(Context context);
  ~JobQueue();  // Shutdown

  /// The first answer to a known request_id (also AlreadyExists); nothing for a new one. Call this
  /// before making the work.
  absl::StatusOr<std::optional<JobStatus>> Earlier(const model::JobSpec& spec);
  /// Errors as JobService.SubmitJob; `report` (may be null) says why memory can never suffice.
  absl::StatusOr<JobStatus> Submit(const model::JobSpec& spec, std::unique_ptr<JobWork> work,
                                   model::AdmissionReport* report);
  absl::StatusOr<model::AdmissionReport> Plan(const model::JobSpec& spec, const JobWork& work,
                                              JobPlan* chosen);
  absl::StatusOr<JobStatus> Get(const std::string& name);
  std::vector<JobStatus> List();  // newest first
  absl::StatusOr<JobStatus> Cancel(const std::string& name, Reason reason_code = Reason::kCancelled,
                                   const std::string& reason = "cancelled by a client");
  /// Cancels a job whose result is scratch because its session has ended (SESSION_EXPIRED).
  absl::StatusOr<JobStatus> CancelScratch(const JobStatus& job);
  /// The same for all jobs of these sessions whose JobSpec.orphan says that they are scratch.
  void CancelScratchOf(const std::set<std::string>& sessions);
  /// The port to which clients push the projections of a job that has not ended. NotFound;
  /// FailedPrecondition (NOT_PUSH, JOB_STATE).
  absl::StatusOr<std::shared_ptr<source::ProjectionPort>> ProjectionPortOf(const std::string& name);

  /// Starts jobs if memory or a device has become free, and joins threads that are no longer
  /// needed. Cheap when no job waits. Call several times a second.
  void Tick();
  /// Queued jobs are cancelled; running ones may finish.
  void BeginDrain();
  void CancelAll(Reason reason_code, const std::string& reason);
  /// Cancels waiting and running jobs, waits for their end and ends the workers: the observer is
  /// not called any more.
  void Shutdown();
  /// True when no job waits or runs.
  bool Idle();
  /// Jobs that run on device `index`, including those that wait for their input.
  int RunningOn(int index);
  void AddTo(model::Stats* stats);

 private:
  struct Entry;
  class Running;
  struct Worker {
    Stream stream;                 // its thread's
    std::shared_ptr<Entry> entry;  // the job that it runs; null = idle
    std::jthread thread;
  };
  /// A device: the job that may use it (null = it is free), a worker for every job that runs or
  /// waits without the device, and an idle one.
  struct Lane {
    std::shared_ptr<Entry> turn;
    std::vector<std::unique_ptr<Worker>> workers;
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  absl::StatusOr<std::shared_ptr<Entry>> FindLocked(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<int>> Candidates(const model::JobSpec& spec,
                                              const JobWork& work) const;
  std::vector<model::AdmissionReport::Item> NeedsOf(const JobPlan& plan) const;
  std::vector<std::shared_ptr<Entry>> OrderLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<Entry>> ReturningLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DispatchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DispatchOneLocked(bool* changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool BeginLocked(const std::shared_ptr<Entry>& entry, bool* changed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Worker& WorkerOfLocked(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool LeavesLocked(int device, const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetStateLocked(Entry& entry, JobState state, absl::string_view code,
                      const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobStatus StatusLocked(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Record(Entry& entry, const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Warn(Entry& entry, const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpTurn(const std::shared_ptr<Entry>& entry);
  absl::Status TakeTurn(const std::shared_ptr<Entry>& entry, const std::stop_token& stop);
  void Work(int device, Worker& worker);
  void Execute(const std::shared_ptr<Entry>& entry, int device, Stream& stream);

  const Context context_;
  mutable Mutex mutex_;
  CondVar cv_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false, draining_ ABSL_GUARDED_BY(mutex_) = false;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::vector<std::unique_ptr<JobWork>> gone_
      ABSL_GUARDED_BY(mutex_);  // of jobs that never began, until Tick
  std::map<std::string, std::pair<std::string, std::string>> requests_
      ABSL_GUARDED_BY(mutex_);  // id → digest, job
  std::map<std::string, uint64_t> served_
      ABSL_GUARDED_BY(mutex_);  // group → when one of it began last
  uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 0, returns_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_device_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, std::string>, int64_t> finished_
      ABSL_GUARDED_BY(mutex_);  // (kind, reason)
  model::Histogram queue_seconds_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, model::Histogram> run_seconds_ ABSL_GUARDED_BY(mutex_);  // by kind
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mutex_);                              // [device]
  std::vector<std::unique_ptr<Worker>> left_
      ABSL_GUARDED_BY(mutex_);  // workers whose threads end, until Tick
};

}  // namespace octavo::job
