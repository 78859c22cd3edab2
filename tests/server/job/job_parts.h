#pragma once

// Jobs and what they report to, for tests of the parts of the job queue by themselves.

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "gpu/backend/open_devices.h"
#include "server/job/job_entry.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

/// Work that does nothing and says when it is released.
class IdleWork final : public JobWork {
 public:
  explicit IdleWork(int64_t workspace_bytes = 1024, int home = -1, int* released = nullptr,
                    JobKind kind = JobKind::kReprocess)
      : workspace_bytes_(workspace_bytes), home_(home), released_(released), kind_(kind) {}
  ~IdleWork() override {
    if (released_ != nullptr) ++*released_;
  }
  JobKind kind() const override { return kind_; }
  int home_device() const override { return home_; }
  absl::StatusOr<JobPlan> Plan(Device&) const override {
    JobPlan plan;
    plan.workspace_bytes = workspace_bytes_;
    plan.text = "nothing";
    return plan;
  }
  std::string Parameters() const override { return "{}"; }
  absl::Status Run(JobRun&, std::stop_token) override { return absl::OkStatus(); }

 private:
  const int64_t workspace_bytes_;
  const int home_;
  int* const released_;
  const JobKind kind_;
};

/// A queued job with a plan for each of these devices.
inline JobPtr MakeJob(const std::string& name, int priority = 0, const std::string& group = "",
                      const std::vector<int>& devices = {0}, int64_t workspace_bytes = 1024) {
  auto job = std::make_shared<JobEntry>();
  job->status.name = "jobs/" + name;
  job->status.kind = JobKind::kReprocess;
  job->status.spec.priority = priority;
  job->status.spec.group = group;
  job->work = std::make_unique<IdleWork>(workspace_bytes);
  for (const int device : devices) {
    JobPlan plan;
    plan.workspace_bytes = workspace_bytes;
    job->plans.emplace(device, std::move(plan));
  }
  return job;
}

inline std::vector<std::string> NamesOf(const std::vector<JobPtr>& jobs) {
  std::vector<std::string> names;
  for (const JobPtr& job : jobs) names.push_back(job->status.name.substr(5));
  return names;
}

/// A commit of a volume that is being made, which notes what it is told.
class NotedCommit final : public volume::GrowingCommit {
 public:
  explicit NotedCommit(std::vector<std::string>* notes) : notes_(*notes) {}
  absl::Status Reach(int64_t bytes, StreamRef) override {
    notes_.push_back(absl::StrCat("reach ", bytes));
    return absl::OkStatus();
  }
  void Held() override { notes_.push_back("held"); }
  void Failed(const absl::Status& why) override {
    notes_.push_back(absl::StrCat("failed ", why.message()));
  }

 private:
  std::vector<std::string>& notes_;
};

/// Counts how often it was told.
class CountingObserver final : public JobObserver {
 public:
  void OnJobsChanged() override { ++told; }
  void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) override {
    wanted.emplace_back(volume, options.destination);
  }
  std::unique_ptr<volume::GrowingCommit> OnGrowingCommitWanted(
      const volume::GrowingVolume& volume, const model::CommitOptions& options) override {
    if (!grows) return nullptr;
    EXPECT_EQ(volume.status.state, VolumeState::kAcquiring);
    EXPECT_EQ(volume.slot->volume.bytes(), volume.status.bytes);
    growing.push_back(absl::StrCat("begin ", options.destination));
    return std::make_unique<NotedCommit>(&growing);
  }
  std::atomic<int> told{0};
  std::vector<std::pair<std::string, std::string>> wanted;  // volume, destination
  bool grows = false;                // commits begin while their volumes are made
  std::vector<std::string> growing;  // what those were told
};

/// The services of jobs on host devices, and a table.
class JobPartsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBudgetBytes = 1 << 20;

  explicit JobPartsTest(int devices = 1)
      : opened_(OpenDevices("host", devices).value()),
        ledger_(std::vector<int64_t>(static_cast<size_t>(devices), kBudgetBytes)) {
    std::vector<DeviceSet::Member> members;
    for (const auto& device : opened_.devices)
      members.push_back({device.get(), std::make_shared<FramePool>(device.get(), 1 << 20)});
    services_ = {.devices = DeviceSet(std::move(members)),
                 .ledger = &ledger_,
                 .volumes = &volumes_,
                 .publisher = &publisher_,
                 .clock = &clock_,
                 .server_id = "testtest",
                 .observer = &observer_};
  }

  absl::Status Insert(const JobPtr& job) {
    MutexLock lock(table_.mutex());
    return table_.Insert(job).status();
  }
  void SetState(const JobPtr& job, JobState state, Reason code = Reason::kNone) {
    MutexLock lock(table_.mutex());
    table_.SetState(*job, state, code, "");
  }

  octavo::testing::FakeClock clock_;
  OpenedDevices opened_;
  Ledger ledger_;
  VolumeStore volumes_{&ledger_, &clock_};
  Publisher publisher_{&clock_};
  CountingObserver observer_;
  JobServices services_;
  JobTable table_{&clock_, &publisher_};
};

}  // namespace octavo::engine::testing
