#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/device_turns.h"
#include "server/job/job.h"
#include "server/job/job_entry.h"
#include "server/job/job_pictures.h"
#include "server/job/job_results.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/job/job_workspace.h"

namespace octavo::job {

/// The JobRun of one job: keeps its progress in the table, and passes the rest to the parts that
/// have its memory, its results and its pictures. Used by the job's thread only.
class RunningJob final : public JobRun {
 public:
  /// `job` runs on its device already. All but `job` must outlive the run.
  RunningJob(const JobServices& services, JobTable& table, DeviceTurns& turns, JobPtr job,
             StreamRef stream);

  JobResults& results() { return results_; }

  Device& device() override { return device_; }
  int device_index() const override { return job_->device; }
  StreamRef stream() override { return stream_; }
  const std::string& name() const override { return name_; }
  absl::Status WithoutDevice(const std::function<absl::Status()>& wait,
                             std::stop_token stop) override;

  void Stage(JobStage stage, int64_t steps, double begin, double end) override;
  void Step(int64_t step, double residual_norm) override;
  void Log(const std::string& text) override;
  void Warn(const std::string& text) override;
  void Found(JobFinding finding) override;

  absl::StatusOr<void*> Allocate(int64_t bytes) override { return workspace_.Allocate(bytes); }
  void Free(void* data) override { workspace_.Free(data); }
  absl::Status Charge(int64_t bytes) override { return workspace_.Charge(bytes); }
  void Discharge(int64_t bytes) override { workspace_.Discharge(bytes); }
  void Keep(std::shared_ptr<void> object) override { workspace_.Keep(std::move(object)); }

  absl::Status Buffer(const std::function<absl::Status(int64_t charge)>& take) override;
  absl::StatusOr<void*> Result(size_t index, model::VolumeStatus volume) override {
    return results_.Result(index, std::move(volume));
  }
  absl::Status BeginStored(size_t index, model::VolumeStatus volume) override {
    return results_.BeginStored(index, std::move(volume));
  }
  absl::Status Store(size_t index, const void* data, int64_t bytes) override {
    return results_.Store(index, data, bytes);
  }
  bool MakesInOrder(size_t index) override { return results_.MakesInOrder(index); }
  absl::Status Made(size_t index, int64_t bytes) override { return results_.MadeTo(index, bytes); }
  void SetDisplay(size_t index, double lo, double hi) override {
    results_.SetDisplay(index, lo, hi);
  }
  void SetClipped(size_t index, int64_t below, int64_t above) override {
    results_.SetClipped(index, below, above);
  }
  void* ResultMip(size_t index, bool made) override { return results_.ResultMip(index, made); }
  absl::Status Complete(size_t index) override { return results_.Complete(index); }

  double PreviewDueIn() override { return pictures_.PreviewDueIn(); }
  std::vector<publish::Wanted> Wanted() override { return pictures_.Wanted(); }
  absl::Status Publish(const Plane& plane) override { return pictures_.Publish(plane); }

 private:
  const JobServices& services_;
  JobTable& table_;
  DeviceTurns& turns_;
  const JobPtr job_;
  Device& device_;
  const StreamRef stream_;
  const std::string name_;
  JobPictures pictures_;
  JobResults results_;
  JobWorkspace workspace_;  // freed before the results
  bool buffer_taken_ = false;
  double stage_begin_ = 0, stage_end_ = 0;
  int64_t stage_ns_ = 0;  // when it began
};

}  // namespace octavo::job
