#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/device/device.h"
#include "server/model/job_spec.h"
#include "server/model/status_types.h"
#include "server/publish/topic.h"

namespace octavo::source {
class ProjectionPort;
}  // namespace octavo::source

// The description of a job, and the interface that a kind of job implements (JobWork). The queue
// (job_queue.h) manages states, devices, memory, results and progress.
namespace octavo::job {

enum class JobState : uint8_t {
  kQueued = 1,
  kRunning = 2,
  kCancelling = 3,
  kDone = 4,
  kFailed = 5,
  kCancelled = 6,
  kLost = 7                        // of an earlier daemon, which died before the job's end
};                                 // as octavo.v1.JobState
const char* Name(JobState state);  // "RUNNING"
inline bool IsFinal(JobState s) { return s >= JobState::kDone; }
/// OK if a job may go from one state to the other; FailedPrecondition that names both otherwise.
///   queued → running | cancelled | failed
///   running → done | failed | cancelling
///   cancelling → cancelled | failed
absl::Status CheckTransition(const std::string& job, JobState from, JobState to);

/// Values as in octavo.v1.JobKind.
enum class JobKind : uint8_t {
  kNone,
  kReprocess,
  kDispersionAutofocus,
  kKCalibration,
  kTomography,
  kImport,
  kProjection
};
/// Of those above; server/rpc/convert/job.cc checks it against the contract.
inline constexpr JobKind kLastJobKind = JobKind::kProjection;
const char* Name(JobKind kind);  // "reprocess": a metrics label; in files, too

/// Values as in octavo.v1.JobStage.
enum class JobStage : uint8_t {
  kNone,
  kProjections,
  kAxis,
  kReconstruct,
  kReprocess,
  kSweep,
  kRefine,
  kPhase,
  kDerive,
  kImport,
  kPrepare,
  kProject
};

/// All fields as in octavo.v1.JobStep.
struct JobStep {
  JobStage stage = JobStage::kNone;
  int64_t step = 0;
  double residual_norm = 0;  // NaN = none
  double seconds = 0;
};

struct JobLogLine {
  double seconds = 0;
  std::string text;
};

/// The findings of a job, beside volumes.
using JobFinding = std::variant<std::monostate, model::DispersionEstimate,
                                model::KLinearisationEstimate, model::TomographyReport>;

/// All fields as in octavo.v1.Job.
struct JobStatus {
  std::string name;
  uint64_t number = 0;  // in the order they were submitted
  model::JobSpec spec;
  JobKind kind = JobKind::kNone;
  JobState state = JobState::kQueued;
  std::string reason;
  Reason reason_code = Reason::kNone;
  absl::Status error;  // of a job that FAILED
  TimePoint created, started, ended;
  std::string device;
  int64_t queue_position = 0;
  std::string plan;
  std::vector<std::string> warnings;
  int64_t memory_bytes = 0;
  JobStage stage = JobStage::kNone;
  double fraction = 0;
  int64_t step = 0, steps = 0;
  double eta_seconds = 0;
  std::vector<JobStep> history;  // the last kJobHistoryKept, oldest first
  uint64_t step_count = 0;
  std::vector<JobLogLine> log;
  uint64_t log_count = 0;
  std::vector<std::string> volumes;
  std::string buffer;                // of a job that is DONE and has made one
  std::vector<std::string> commits;  // paths to which its volumes were committed (JobSpec.commit)
  int64_t commit_failures = 0;       // commits that failed
  JobFinding finding;
  uint64_t event_count = 0;  // grows with every change that watchers see
  bool earlier_run = false;  // of an earlier daemon: what its history says
};
constexpr size_t kJobHistoryKept = 256, kJobWarningsKept = 64;

/// The device memory and the results of a job. The queue reserves the sum before Run, all or
/// nothing.
struct JobPlan {
  struct Result {
    int64_t bytes = 0;      // of the volume, or the most that it can have
    int64_t mip_bytes = 0;  // of its MIP over z, published when the job is done; 0 = none
    // stored batch by batch (JobRun::Store) and held in the tier DISK: only its MIP takes device
    // memory
    bool on_disk = false;
    // on_disk: it takes the device memory of the result before, which is complete when it begins
    bool after_before = false;

    /// What the ledger counts for it: its memory as it is allocated.
    int64_t charged_bytes() const;
  };
  std::vector<Result> results;
  int64_t workspace_bytes =
      0;  // the most that Run allocates at a time (JobRun::Allocate, JobRun::Charge)
  int64_t buffer_bytes = 0;  // charged for the buffer that the job makes (JobRun::Buffer); 0 = none
  std::string text;          // the steps in words, one per line
  std::vector<std::string> warnings;  // possible mistakes of the request, one sentence each
  int64_t view_extents[3] = {
      // extents along y, x, z of the images that Subscribe shows of the job; all 0 = none
      0, 0, 0};
  model::FrameAxis bscan_axis = model::FrameAxis::kY;  // default axis of BSCAN planes
  std::vector<int64_t> shape;  // of the volume, or of each of a series; empty = not told

  int64_t bytes() const;
};

/// The services of the queue for a running job. Used by the job's thread only, except `stop`.
class JobRun {
 public:
  virtual ~JobRun() = default;

  // -- where
  virtual Device& device() = 0;
  virtual int device_index() const = 0;
  virtual StreamRef
  stream() = 0;  // the job's own stream; synchronised before any memory of the job is freed
  virtual const std::string& name() const = 0;

  /// Runs `wait` (on this thread) without the device's turn, so that other jobs of the device
  /// continue meanwhile, and then takes the turn again: among jobs of its priority before those
  /// that have not begun, in the order of their return. The job keeps its memory; `wait` may
  /// enqueue small pieces of work, which run beside another job. Returns the error of `wait` at
  /// once; Cancelled if `stop` is requested before the turn comes.
  virtual absl::Status WithoutDevice(const std::function<absl::Status()>& wait,
                                     std::stop_token stop) = 0;

  // -- progress
  /// A stage begins: it is [begin, end] of the whole (0 ... 1) and has `steps` steps (0 = not
  /// known).
  virtual void Stage(JobStage stage, int64_t steps, double begin, double end) = 0;
  /// `step` steps of the stage are done. `residual_norm`: the convergence measure of an iterative
  /// method; NaN = none.
  virtual void Step(int64_t step, double residual_norm) = 0;
  virtual void Log(const std::string& text) = 0;
  /// Adds a warning about a possible mistake, a sentence for the client (Job.warnings); repeated
  /// texts count once.
  virtual void Warn(const std::string& text) = 0;
  virtual void Found(JobFinding finding) = 0;

  // -- memory
  /// Allocates device memory from the plan's workspace, kept until the job ends or Free. Internal
  /// if it exceeds the plan.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  /// Frees memory from Allocate. The stream must have passed its last use.
  virtual void Free(void* data) = 0;
  /// Counts `bytes` that another object (a SpectralProcessor) allocates, against the plan's
  /// workspace.
  virtual absl::Status Charge(int64_t bytes) = 0;
  /// Removes a charge: that memory is free again.
  virtual void Discharge(int64_t bytes) = 0;
  /// Keeps `object` alive until the stream has passed all work that the job enqueued.
  virtual void Keep(std::shared_ptr<void> object) = 0;

  // -- results
  /// Calls `take` once with the ledger's charge for the buffer of the plan. If it returns OK, the
  /// charge is the caller's; otherwise it ends with the job.
  virtual absl::Status Buffer(const std::function<absl::Status(int64_t charge)>& take) = 0;
  /// Device memory of result `index` of the plan, [shape] of dtype. `volume` describes it: shape,
  /// dtype, spacing, levels, value or quantity, times, origin, derived_from, operations, scan
  /// (empty = the job's name). The queue sets name, state, device, bytes, labels and title. The
  /// volume is held when Complete or Run returns OK, and is FAILED otherwise.
  virtual absl::StatusOr<void*> Result(size_t index, model::VolumeStatus volume) = 0;
  /// For a result on_disk: as Result, without memory. Reserves room on the disk now:
  /// ResourceExhausted (SPILL_QUOTA, DISK_FULL).
  virtual absl::Status BeginStored(size_t index, model::VolumeStatus volume) = 0;
  /// Appends `bytes` of device memory, which the stream computes, to the result; waits for the
  /// stream. The job stores the result front to back.
  virtual absl::Status Store(size_t index, const void* data, int64_t bytes) = 0;
  /// Result `index`, which has begun and is in device memory, is made front to back from now on if
  /// this returns true, because a commit that the client asked for writes it meanwhile.
  virtual bool MakesInOrder(size_t index) = 0;
  /// Then: its first `bytes` are enqueued on the stream, and nothing changes them any more. Does
  /// not wait. All of them must be told before the result is complete.
  virtual absl::Status Made(size_t index, int64_t bytes) = 0;
  /// Sets the values of the result to show as black and white.
  virtual void SetDisplay(size_t index, double lo, double hi) = 0;
  /// Sets the numbers of its voxels that were clipped below and above its levels.
  virtual void SetClipped(size_t index, int64_t below, int64_t above) = 0;
  /// Device memory for its MIP over z, if it was planned. A job that computes the MIP itself writes
  /// it here and sets `made`; else the queue computes it at the end.
  virtual void* ResultMip(size_t index, bool made) = 0;
  /// Result `index` is complete, while the job goes on: it is held when this returns, whatever
  /// becomes of the job. Waits for the stream. Cancelled if the job was asked to end before. The
  /// results that a job does not complete by itself are completed when Run returns OK.
  virtual absl::Status Complete(size_t index) = 0;

  // -- previews for subscribers (StreamService.Subscribe with the job's name)
  /// The seconds until a preview is due: 0 if there is a subscriber and the last preview is at
  /// least a tenth of a second old; a tenth while nobody looks.
  virtual double PreviewDueIn() = 0;
  bool PreviewDue() { return PreviewDueIn() == 0; }
  /// The planes that subscribers want.
  virtual std::vector<publish::Wanted> Wanted() = 0;
  struct Plane {
    publish::TopicKey key;
    const void* data = nullptr;  // device memory [rows, columns]
    DType dtype = DType::kF32;
    int64_t rows = 0, columns = 0;
    std::string row_axis, column_axis;  // "y", "x"
    double row_spacing_um = 1, column_spacing_um = 1;
    bool spacing_assumed = false;  // nobody gave them: they count pixels
    double display_lo = 0, display_hi = 0;
  };
  /// Copies the plane to host memory (waits for the stream) and publishes it as a preview.
  virtual absl::Status Publish(const Plane& plane) = 0;
};

/// A kind of job: what to implement. Built from a checked spec (job_kinds.cc), used by one thread
/// at a time. It keeps its inputs alive (pinned volumes) until it is destroyed.
class JobWork {
 public:
  virtual ~JobWork() = default;
  virtual JobKind kind() const = 0;
  /// The device of its data; -1 = any.
  virtual int home_device() const { return -1; }
  /// The volume that it will make, as far as the options of its commit depend on it: shape, type,
  /// axes, spacing. Nothing: not known before it runs.
  virtual std::optional<model::VolumeStatus> Expected() const { return std::nullopt; }
  /// Whether it makes several volumes, which VolumeStatus::index tells apart.
  virtual bool makes_series() const { return false; }
  /// Its needs on `device`. Allocates nothing, takes milliseconds at most. InvalidArgument names
  /// the field of the request.
  virtual absl::StatusOr<JobPlan> Plan(Device& device) const = 0;
  /// The specification as JSON, for the files of its results.
  virtual std::string Parameters() const = 0;
  /// Executes the job. Enqueues on run.stream(); checks `stop` at least every few tenths of a
  /// second and then returns Cancelled. Allocates device memory only through `run`.
  virtual absl::Status Run(JobRun& run, std::stop_token stop) = 0;
  /// The job has succeeded, and it is too late for a cancel: clients see the buffer that it has
  /// made from now on. Returns its name; "" = it has made none.
  virtual std::string PublishBuffer() { return ""; }
  /// The port to which clients push its projections; null = none. Any thread.
  virtual std::shared_ptr<source::ProjectionPort> projection_port() const { return nullptr; }
};

}  // namespace octavo::job
