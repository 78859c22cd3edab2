#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/base/device_names.h"
#include "server/job/job_entry.h"

namespace octavo::job {

/// The threads that run jobs: for each device one for every job that runs or waits without the
/// device, and an idle one. A thread has a stream of its own, which the first job makes. Decides
/// nothing about jobs: the caller gives each job to a thread. Thread-safe. Its lock is inside those
/// of its callers, and none is held while `run` runs.
class JobWorkers {
 public:
  /// Runs a job. It may call SetIdle, so that the thread can be given another job before it
  /// returns.
  using RunJob = std::function<void(const JobPtr& job, Stream& stream)>;
  /// `host_for_jobs`: the last device is devices/host. The threads of its jobs, and of the streams
  /// that they make, leave the cores to the acquisition threads.
  JobWorkers(int devices, RunJob run, bool host_for_jobs = false);
  ~JobWorkers();  // Shutdown

  /// Makes sure that the device has an idle thread. ResourceExhausted (NO_THREAD).
  absl::Status Prepare(int device);
  /// Gives the job to an idle thread, which Prepare has found: only one caller at a time may do
  /// these two.
  void Give(int device, const JobPtr& job);
  /// The thread that runs `job` is idle from now on.
  void SetIdle(int device, const JobPtr& job);
  /// Joins the threads that have ended. After many jobs waited for their input at the same time,
  /// all but one idle thread of each device end.
  void JoinEnded();
  /// Ends the threads when their jobs have ended. No job may be given any more.
  void Shutdown();
  /// Threads of the device that are not idle.
  int Busy(int device);

 private:
  struct Worker {
    Stream stream;  // its thread's
    JobPtr job;     // that it runs; null = idle
    std::jthread thread;
  };
  using Workers = std::vector<std::unique_ptr<Worker>>;

  void Work(int device, Worker& worker);
  bool Leaves(int device, const Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const base::DeviceNames names_;
  const RunJob run_;
  Mutex mutex_;
  CondVar given_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Workers> workers_ ABSL_GUARDED_BY(mutex_);  // [device]
  Workers left_ ABSL_GUARDED_BY(mutex_);                  // whose threads end, until JoinEnded
};

}  // namespace octavo::job
