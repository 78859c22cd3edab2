#pragma once

// Jobs that wait for gates, which the test opens, and a queue of two host devices.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "server/job/job_queue.h"
#include "tests/support/news.h"
#include "tests/support/news_of_jobs.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

using octavo::testing::IsOk;

inline constexpr int64_t kBudget = 1 << 20;

/// A one-time event that threads can wait for.
class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Returns false if `stop` came first.
  bool Wait(std::stop_token stop = {}) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [this] { return open_; });
    return open_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool open_ = false;
};

struct Script {
  int64_t result_bytes = 0, workspace_bytes = 1024;
  int home = -1;
  bool preview = false;
  bool z_first = false;  // axes of the result: z, y, x, else y, x, z; no two voxels are equal
  absl::Status end = absl::OkStatus(), end_of_wait = absl::OkStatus();
  bool waits = false;  // waits for `input` without its device
  Gate begun, input, has_input, may_end;
  std::string order;  // the job appends "name" to `log` when it begins
  std::vector<std::string>* log = nullptr;
  std::mutex* log_mutex = nullptr;
};

class ScriptedWork final : public JobWork {
 public:
  explicit ScriptedWork(std::shared_ptr<Script> script) : script_(std::move(script)) {}
  JobKind kind() const override { return JobKind::kReprocess; }
  int home_device() const override { return script_->home; }
  absl::StatusOr<JobPlan> Plan(Device&) const override {
    JobPlan plan;
    if (script_->result_bytes > 0)
      plan.results.push_back({.bytes = script_->result_bytes,
                              .mip_bytes = script_->z_first ? 16 : script_->result_bytes / 4});
    plan.workspace_bytes = script_->workspace_bytes;
    plan.text = "waits for a gate";
    if (script_->preview)
      plan.view_extents[0] = script_->result_bytes / 16, plan.view_extents[1] = 4,
      plan.view_extents[2] = 4;
    if (script_->z_first)
      std::swap(plan.view_extents[0], plan.view_extents[2]), plan.bscan_axis = FrameAxis::kZ;
    return plan;
  }
  std::string Parameters() const override { return R"({"gate": true})"; }
  absl::Status Run(JobRun& run, std::stop_token stop) override {
    if (script_->log != nullptr) {
      std::lock_guard lock(*script_->log_mutex);
      script_->log->push_back(script_->order);
    }
    run.Stage(JobStage::kProjections, 2, 0.0, 0.5);
    run.Log("hello");
    void* out = nullptr;
    if (script_->result_bytes > 0) {
      VolumeStatus volume;
      volume.shape[0] = script_->result_bytes / 16, volume.shape[1] = 4, volume.shape[2] = 4;
      volume.dtype = DType::kU8;
      volume.complete = true;
      if (script_->z_first) volume.axes[0] = "z", volume.axes[1] = "y", volume.axes[2] = "x";
      OCTAVO_ASSIGN_OR_RETURN(out, run.Result(0, volume));
      OCTAVO_RETURN_IF_ERROR(
          run.device().Fill(run.stream(), out, script_->result_bytes, 0x07070707u));
      if (script_->z_first) {
        std::vector<uint8_t> voxels(static_cast<size_t>(script_->result_bytes));
        for (size_t i = 0; i < voxels.size(); ++i) voxels[i] = static_cast<uint8_t>(i);
        OCTAVO_RETURN_IF_ERROR(
            run.device().CopyToDevice(run.stream(), out, voxels.data(), script_->result_bytes));
        OCTAVO_RETURN_IF_ERROR(run.stream().Synchronize());
      }
    }
    run.Step(1, 3.5);
    script_->begun.Open();
    if (script_->waits) {
      OCTAVO_RETURN_IF_ERROR(run.WithoutDevice(
          [&] {
            return script_->input.Wait(stop) ? script_->end_of_wait
                                             : absl::CancelledError("stopped");
          },
          stop));
      if (script_->log != nullptr) {
        std::lock_guard lock(*script_->log_mutex);
        script_->log->push_back(script_->order + " again");
      }
      script_->has_input.Open();
    }
    if (!script_->may_end.Wait(stop)) return absl::CancelledError("stopped");
    if (script_->preview && run.PreviewDue()) {
      OCTAVO_RETURN_IF_ERROR(
          run.Publish({.key = {.product = Product::kBscan, .axis = FrameAxis::kY, .plane_index = 1},
                       .data = out,
                       .dtype = DType::kU8,
                       .rows = 4,
                       .columns = 4,
                       .row_axis = "x",
                       .column_axis = "z"}));
    }
    run.Step(2, 1.25);
    return script_->end;
  }

 private:
  const std::shared_ptr<Script> script_;
};

class JobQueueTest : public ::testing::Test {
 protected:
  static constexpr int kDevices = 2;
  JobQueueTest() {
    std::vector<DeviceSet::Member> devices;
    for (int d = 0; d < kDevices; ++d) {
      opened_.push_back(OpenDevices("host").value());
      Device* const device = opened_.back().devices[0].get();
      frames_.push_back(std::make_shared<FramePool>(device, 1 << 20));
      devices.push_back({device, frames_.back()});
    }
    queue_ = std::make_unique<JobQueue>(JobQueue::Context{.devices = DeviceSet(std::move(devices)),
                                                          .ledger = &ledger_,
                                                          .volumes = &volumes_,
                                                          .publisher = &publisher_,
                                                          .clock = &clock_,
                                                          .server_id = "testtest",
                                                          .observer = &observer_});
  }

  static JobSpec Spec(int priority = 0, std::string group = "", std::string device = "") {
    JobSpec spec;
    spec.title = "a job";
    spec.labels = {{"who", "me"}};
    spec.priority = priority;
    spec.group = std::move(group);
    spec.device = std::move(device);
    return spec;
  }
  JobStatus Submit(const std::shared_ptr<Script>& script, const JobSpec& spec = Spec()) {
    auto job = queue_->Submit(spec, std::make_unique<ScriptedWork>(script), nullptr);
    EXPECT_THAT(job, IsOk());
    return job.ok() ? *job : JobStatus();
  }
  template <class F>
  JobStatus Await(const std::string& name, F when) {
    JobStatus status;
    news_.Await([&] { return when(status = queue_->Get(name).value()); });
    return status;
  }
  JobStatus AwaitEnd(const std::string& name) {
    return Await(name, [](const JobStatus& job) { return IsFinal(job.state); });
  }
  int64_t Used() {
    return ledger_.UseOf(0).reserved + ledger_.UseOf(0).held + ledger_.UseOf(1).reserved +
           ledger_.UseOf(1).held;
  }

  const SystemClock clock_;
  std::vector<OpenedDevices> opened_;
  std::vector<std::shared_ptr<FramePool>> frames_;
  Ledger ledger_{{kBudget, kBudget}};
  VolumeStore volumes_{&ledger_, &clock_};
  Publisher publisher_{&clock_};
  octavo::testing::News news_;
  octavo::testing::NewsOfJobs observer_{&news_};
  std::unique_ptr<JobQueue> queue_;
};

}  // namespace octavo::engine::testing
