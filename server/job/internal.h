#pragma once

// Private to this folder.

#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "server/job/job_queue.h"

namespace octavo::job {

struct JobQueue::Entry {
  JobStatus status;              // guarded by the queue's mutex
  std::map<int, JobPlan> plans;  // by device, of those that it may run on; fixed
  std::unique_ptr<JobWork> work;
  std::shared_ptr<source::ProjectionPort>
      projections;  // of the work, until the job has ended; guarded by the queue's mutex
  std::stop_source stop;
  std::vector<memory::Ledger::ChargeId> charges;  // without those of results that have begun
  int device = -1;
  // Not 0: it waits for its device's turn again, in this order; guarded by the queue's mutex.
  uint64_t returned = 0;
  bool finishing = false;  // its results are being handed out; guarded by the queue's mutex
};

/// The interface of a running job. Used by the worker's thread only.
class JobQueue::Running final : public JobRun {
 public:
  Running(JobQueue& queue, std::shared_ptr<Entry> entry, Device& device, StreamRef stream);
  ~Running() override;

  /// Allocates the results.
  absl::Status Begin();
  /// Computes projections and digests of the results; waits for them.
  absl::Status Finish();
  /// Publishes the results as held volumes, or fails them.
  void Close(bool held, const absl::Status& status);

  Device& device() override { return device_; }
  int device_index() const override { return entry_->device; }
  StreamRef stream() override { return stream_; }
  const std::string& name() const override { return name_; }
  void Stage(const std::string& name, int64_t steps, double begin, double end) override;
  void Step(int64_t step, double residual_norm) override;
  void Log(const std::string& text) override;
  void Warn(const std::string& text) override;
  void Found(JobFinding finding) override;
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* data) override;
  absl::Status Charge(int64_t bytes) override;
  void Discharge(int64_t bytes) override { used_bytes_ -= bytes; }
  void Keep(std::shared_ptr<void> object) override { kept_.push_back(std::move(object)); }
  absl::StatusOr<void*> Result(size_t index, model::VolumeStatus volume) override;
  absl::Status BeginStored(size_t index, model::VolumeStatus volume) override;
  absl::Status Store(size_t index, const void* data, int64_t bytes) override;
  void SetDisplay(size_t index, double lo, double hi) override;
  void SetClipped(size_t index, int64_t below, int64_t above) override;
  void* ResultMip(size_t index, bool made) override;
  absl::Status WithoutDevice(const std::function<absl::Status()>& wait,
                             std::stop_token stop) override;
  bool PreviewDue() override;
  std::vector<publish::Publisher::Wanted> Wanted() override {
    return queue_.context_.publisher->WantedOf(name_);
  }
  absl::Status Publish(const Plane& plane) override;

 private:
  struct Made {
    std::shared_ptr<memory::VolumeSlot> slot;
    model::VolumeStatus volume;  // name empty: not begun
    bool has_mip = false;
    std::unique_ptr<volume::Spiller::Storing> storing;    // on disk, while it is made
    std::shared_ptr<const volume::SpilledVolume> stored;  // and when it is whole
  };
  absl::Status Describe(size_t index, model::VolumeStatus* volume);
  void PublishCuts(const Made& made);

  JobQueue& queue_;
  const std::shared_ptr<Entry> entry_;
  Device& device_;
  const StreamRef stream_;
  const std::string name_;
  const JobPlan& plan_;
  std::vector<Made> made_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::shared_ptr<void>> kept_;
  int64_t used_bytes_ = 0;
  double stage_begin_ = 0, stage_end_ = 0;
  int64_t stage_ns_ = 0;  // when it began
  int64_t preview_ns_ = 0;
};

}  // namespace octavo::job
