// Jobs: states, order, memory, results, cancellation.

#include "server/job/job_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "gmock/gmock.h"

#include "tests/server/job/job_queue_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobQueueTest;
using testing::kBudget;
using testing::Script;
using testing::ScriptedWork;

TEST(JobTransitions, ExactlyThoseOfTheStateMachine) {
  using S = JobState;
  const std::set<std::pair<S, S>> allowed = {
      {S::kQueued, S::kRunning},       {S::kQueued, S::kCancelled}, {S::kQueued, S::kFailed},
      {S::kRunning, S::kDone},         {S::kRunning, S::kFailed},   {S::kRunning, S::kCancelling},
      {S::kCancelling, S::kCancelled}, {S::kCancelling, S::kFailed}};
  for (int from = 1; from <= 6; ++from) {
    for (int to = 1; to <= 6; ++to) {
      const std::pair<S, S> step{static_cast<S>(from), static_cast<S>(to)};
      const absl::Status status = CheckTransition("jobs/x", step.first, step.second);
      EXPECT_EQ(status.ok(), allowed.contains(step))
          << Name(step.first) << " " << Name(step.second);
      if (!status.ok())
        EXPECT_THAT(status, IsError(absl::StatusCode::kFailedPrecondition, Name(step.first)));
    }
  }
}

TEST_F(JobQueueTest, LeavesHeldVolumesWithTheirOrigin) {
  auto script = std::make_shared<Script>();
  script->result_bytes = 160;
  const JobStatus queued = Submit(script);
  EXPECT_EQ(queued.kind, JobKind::kReprocess);
  EXPECT_EQ(queued.plan, "waits for a gate");
  EXPECT_EQ(queued.memory_bytes, 160 + 40 + 1024);
  script->begun.Wait();
  JobStatus job = queue_->Get(queued.name).value();
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.stage, JobStage::kProjections);
  EXPECT_DOUBLE_EQ(job.fraction, 0.25);
  EXPECT_GE(job.eta_seconds, 0);
  ASSERT_EQ(job.history.size(), 1u);
  EXPECT_EQ(job.history[0].residual_norm, 3.5);
  ASSERT_EQ(job.volumes.size(), 1u);
  EXPECT_EQ(volumes_.Get(job.volumes[0])->state, VolumeState::kAcquiring);
  EXPECT_EQ(ledger_.UseOf(0).reserved, 256 + 256 + 256 + 1024);
  EXPECT_EQ(queue_->RunningOn(0), 1);
  script->may_end.Open();
  job = AwaitEnd(queued.name);
  EXPECT_EQ(job.state, JobState::kDone);
  EXPECT_EQ(job.reason_code, Reason::kCompleted);
  EXPECT_EQ(job.fraction, 1);
  EXPECT_EQ(job.step_count, 2u);
  EXPECT_EQ(job.log.at(1).text, "hello");
  ASSERT_OK_AND_ASSIGN(const VolumeHold volume,
                       volumes_.Hold(job.volumes.at(0), HoldKind::kDevice));
  EXPECT_EQ(volume.status.state, VolumeState::kHeld);
  EXPECT_EQ(volume.status.scan, job.name);
  EXPECT_EQ(volume.status.job, job.name);
  EXPECT_EQ(volume.status.job_kind, "reprocess");
  EXPECT_EQ(volume.status.job_parameters, R"({"gate": true})");
  EXPECT_EQ(volume.status.title, "a job");
  EXPECT_EQ(volume.status.labels.at("who"), "me");
  EXPECT_THAT(volume.status.digest, HasSubstr("sum64:"));
  std::vector<uint8_t> voxels(160), mip(40);
  Device& device = *opened_[0].devices[0];
  Stream stream = device.NewStream(StreamPriority::kNormal).value();
  ASSERT_THAT(device.CopyToHost(stream.ref(), voxels.data(), volume.slot->volume.data(), 160),
              IsOk());
  ASSERT_THAT(device.CopyToHost(stream.ref(), mip.data(), volume.slot->mip.data(), 40), IsOk());
  ASSERT_THAT(stream.ref().Synchronize(), IsOk());
  EXPECT_EQ(voxels, std::vector<uint8_t>(160, 7));
  EXPECT_EQ(mip, std::vector<uint8_t>(40, 7));
  EXPECT_EQ(ledger_.UseOf(0).reserved, 0);
  EXPECT_EQ(ledger_.UseOf(0).held, 768);
}

TEST_F(JobQueueTest, CancelReturnsAllMemoryAtAnyTime) {
  auto running = std::make_shared<Script>(), waiting = std::make_shared<Script>();
  running->result_bytes = waiting->result_bytes = 1600;
  const JobStatus first = Submit(running, Spec(0, "", "devices/1")),
                  second = Submit(waiting, Spec(0, "", "devices/1"));
  running->begun.Wait();
  EXPECT_EQ(queue_->Get(second.name)->reason_code, Reason::kWaitingForDevice);
  EXPECT_EQ(queue_->Get(second.name)->queue_position, 1);
  EXPECT_EQ(queue_->Cancel(second.name)->state, JobState::kCancelled);  // at once
  EXPECT_EQ(queue_->Cancel(first.name)->state, JobState::kCancelling);
  const JobStatus end = AwaitEnd(first.name);
  EXPECT_EQ(end.state, JobState::kCancelled);
  EXPECT_TRUE(end.volumes.empty());
  EXPECT_EQ(Used(), 0);
  const auto volumes = volumes_.List();
  ASSERT_EQ(volumes.size(), 1u);
  EXPECT_EQ(volumes[0].state, VolumeState::kFailed);
  EXPECT_EQ(queue_->Cancel(first.name)->state, JobState::kCancelled);  // idempotent
  EXPECT_THAT(queue_->Cancel("jobs/none"), IsError(absl::StatusCode::kNotFound, "jobs/none"));
}

TEST_F(JobQueueTest, AFailedJobSaysWhyAndFreesItsMemory) {
  auto script = std::make_shared<Script>();
  script->result_bytes = 1600;
  script->end = WithInfo(absl::DataLossError("the data is broken"),
                         {.reason = Reason::kDamagedFile, .field = "", .numbers = {}});
  script->may_end.Open();
  const JobStatus end = AwaitEnd(Submit(script).name);
  EXPECT_EQ(end.state, JobState::kFailed);
  EXPECT_EQ(end.reason_code, Reason::kDamagedFile);
  EXPECT_EQ(end.reason, "the data is broken");
  EXPECT_EQ(Used(), 0);
  Stats stats;
  queue_->AddTo(&stats);
  EXPECT_EQ((stats.jobs_finished.at({"reprocess", "DAMAGED_FILE"})), 1);
  EXPECT_EQ(stats.jobs_by_state.at("FAILED"), 1);
  EXPECT_EQ(stats.job_run_seconds.at("reprocess").count, 1);
}

TEST_F(JobQueueTest, MoreThanWasPlannedIsRefused) {
  class Greedy final : public JobWork {
   public:
    JobKind kind() const override { return JobKind::kReprocess; }
    absl::StatusOr<JobPlan> Plan(Device&) const override {
      return JobPlan{.results = {}, .workspace_bytes = 1000, .text = ""};
    }
    std::string Parameters() const override { return "{}"; }
    absl::Status Run(JobRun& run, std::stop_token) override {
      OCTAVO_ASSIGN_OR_RETURN(void* const first, run.Allocate(800));
      EXPECT_THAT(run.Allocate(300), IsError(absl::StatusCode::kInternal, "800"));
      run.Free(first);
      EXPECT_THAT(run.Allocate(900), IsOk());
      EXPECT_THAT(run.Charge(100), IsOk());
      EXPECT_THAT(run.Result(0, {}), IsError(absl::StatusCode::kInternal, "not planned"));
      return run.Charge(1);
    }
  };
  ASSERT_OK_AND_ASSIGN(const JobStatus job,
                       queue_->Submit(Spec(), std::make_unique<Greedy>(), nullptr));
  EXPECT_EQ(AwaitEnd(job.name).state, JobState::kFailed);
}

TEST_F(JobQueueTest, JobsGoRoundTheDevices) {
  std::vector<std::shared_ptr<Script>> scripts;
  std::vector<std::string> devices;
  for (int i = 0; i < 4; ++i) {
    scripts.push_back(std::make_shared<Script>());
    devices.push_back(Submit(scripts.back()).device);
    if (i % 2 == 1) {  // both workers are busy now
      scripts[static_cast<size_t>(i)]->may_end.Open();
      scripts[static_cast<size_t>(i - 1)]->may_end.Open();
      for (const auto& job : queue_->List()) AwaitEnd(job.name);
      // A worker takes the next job only after it has finished the last one.
      while (queue_->RunningOn(0) + queue_->RunningOn(1) > 0) std::this_thread::yield();
    }
  }
  EXPECT_THAT(devices, ElementsAre("devices/0", "devices/1", "devices/0", "devices/1"));
}

TEST_F(JobQueueTest, PrioritiesFirstThenTheGroupsTakeTurns) {
  std::vector<std::string> log;
  std::mutex log_mutex;
  const auto make = [&](const char* name) {
    auto script = std::make_shared<Script>();
    script->order = name;
    script->log = &log;
    script->log_mutex = &log_mutex;
    script->home = 0;
    return script;
  };
  const auto blocker = make("blocker");
  Submit(blocker, Spec(0, "alice"));
  blocker->begun.Wait();
  std::vector<std::string> names;
  for (const auto& [name, priority, group] : {std::tuple{"a1", 0, "alice"},
                                              {"a2", 0, "alice"},
                                              {"a3", 0, "alice"},
                                              {"b1", 0, "bob"},
                                              {"b2", 0, "bob"},
                                              {"urgent", 5, "alice"},
                                              {"idle", -5, "carol"}}) {
    const auto script = make(name);
    script->may_end.Open();
    names.push_back(Submit(script, Spec(priority, group)).name);
  }
  EXPECT_EQ(queue_->Get(names[5])->queue_position, 1);
  EXPECT_EQ(queue_->Get(names[6])->queue_position, 7);
  blocker->may_end.Open();
  for (const auto& name : names) EXPECT_EQ(AwaitEnd(name).state, JobState::kDone);
  EXPECT_THAT(log, ElementsAre("blocker", "urgent", "b1", "a1", "b2", "a2", "a3", "idle"));
}

TEST_F(JobQueueTest, WaitsForMemoryAndLetsOthersPass) {
  ASSERT_OK_AND_ASSIGN(
      const auto charges,
      ledger_.Reserve(
          0, "scans/big", "",
          {{.kind = model::NeedKind::kVolumeSlots, .bytes = kBudget - 4096, .count = 1}}, nullptr));
  auto large = std::make_shared<Script>(), small = std::make_shared<Script>();
  large->home = small->home = 0;
  large->workspace_bytes = 8192;
  large->may_end.Open();
  small->may_end.Open();
  const JobStatus waits = Submit(large);
  EXPECT_EQ(waits.state, JobState::kQueued);
  EXPECT_EQ(waits.reason_code, Reason::kWaitingForMemory);
  EXPECT_THAT(waits.reason, HasSubstr("needs 8.0 KiB"));
  EXPECT_EQ(AwaitEnd(Submit(small).name).state, JobState::kDone);
  EXPECT_EQ(queue_->Get(waits.name)->state, JobState::kQueued);
  ledger_.Release(charges[0]);
  queue_->Tick();
  EXPECT_EQ(AwaitEnd(waits.name).state, JobState::kDone);
  EXPECT_EQ(Used(), 0);
}

TEST_F(JobQueueTest, RefusesWhatCanNeverRun) {
  auto script = std::make_shared<Script>();
  script->workspace_bytes = kBudget + 1;
  AdmissionReport report;
  const auto refused = queue_->Submit(Spec(), std::make_unique<ScriptedWork>(script), &report);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "budget"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kExceedsBudget);
  EXPECT_EQ(report.wanted_bytes, kBudget + 256);
  ASSERT_OK_AND_ASSIGN(report, queue_->Plan(Spec(), ScriptedWork(script), nullptr));
  EXPECT_FALSE(report.admitted);
  EXPECT_FALSE(report.retryable);
  script->workspace_bytes = 100;
  JobPlan plan;
  ASSERT_OK_AND_ASSIGN(report, queue_->Plan(Spec(), ScriptedWork(script), &plan));
  EXPECT_TRUE(report.admitted);
  EXPECT_EQ(plan.text, "waits for a gate");
  EXPECT_THAT(
      queue_->Submit(Spec(0, "", "devices/7"), std::make_unique<ScriptedWork>(script), nullptr),
      IsError(absl::StatusCode::kInvalidArgument, "devices/7"));
  script->home = 0;
  EXPECT_THAT(
      queue_->Submit(Spec(0, "", "devices/1"), std::make_unique<ScriptedWork>(script), nullptr),
      IsError(absl::StatusCode::kInvalidArgument, "the volume is on devices/0"));
  EXPECT_TRUE(queue_->List().empty());
}

TEST_F(JobQueueTest, TheSameRequestIsOneJob) {
  auto script = std::make_shared<Script>();
  JobSpec spec = Spec();
  spec.request_id = "r1";
  spec.request_digest = "body";
  EXPECT_FALSE(queue_->Earlier(spec)->has_value());
  const JobStatus job = Submit(script, spec);
  EXPECT_EQ((*queue_->Earlier(spec))->name, job.name);
  spec.request_digest = "another body";
  EXPECT_THAT(queue_->Earlier(spec), IsError(absl::StatusCode::kAlreadyExists, job.name));
  script->may_end.Open();
  AwaitEnd(job.name);
}

// Thousands of requests of some megabytes each must not stay in memory.
TEST_F(JobQueueTest, WhatWasAskedOfEndedJobsIsBounded) {
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) {
    auto script = std::make_shared<Script>();
    script->may_end.Open();
    JobSpec spec = Spec();
    auto& work = spec.work.emplace<TomographySpec>();
    work.encoded.assign(size_t{30} << 20, 'x');
    work.json = "{}";
    work.angles_rad = {1, 2, 3};
    names.push_back(Submit(script, spec).name);
    const JobStatus end = AwaitEnd(names.back());
    const auto& kept = std::get<TomographySpec>(end.spec.work);
    EXPECT_EQ(kept.encoded, work.encoded) << "GetJob gives it back";
    EXPECT_TRUE(kept.json.empty() && kept.angles_rad.empty()) << "the work alone needs them";
  }
  int whole = 0;
  for (const auto& name : names) {
    const JobStatus job = queue_->Get(name).value();
    EXPECT_EQ(job.spec.title, "a job");
    whole += std::holds_alternative<TomographySpec>(job.spec.work);
  }
  EXPECT_EQ(whole, 3) << "two, and the one that was submitted last";
  EXPECT_TRUE(std::holds_alternative<std::monostate>(queue_->Get(names[0])->spec.work));
}

TEST_F(JobQueueTest, ADrainLetsWhatRunsFinish) {
  auto running = std::make_shared<Script>(), waiting = std::make_shared<Script>();
  running->home = waiting->home = 0;
  const std::string first = Submit(running).name, second = Submit(waiting).name;
  running->begun.Wait();
  queue_->BeginDrain();
  EXPECT_EQ(queue_->Get(second)->state, JobState::kCancelled);
  EXPECT_EQ(queue_->Get(second)->reason_code, Reason::kDrained);
  EXPECT_FALSE(queue_->Idle());
  EXPECT_THAT(queue_->Submit(Spec(), std::make_unique<ScriptedWork>(waiting), nullptr),
              IsError(absl::StatusCode::kUnavailable, "draining"));
  running->may_end.Open();
  EXPECT_EQ(AwaitEnd(first).state, JobState::kDone);
  EXPECT_TRUE(queue_->Idle());
}

TEST_F(JobQueueTest, WhatAJobHeldGoesWhenItsDeviceIsLost) {
  auto running = std::make_shared<Script>(), waiting = std::make_shared<Script>();
  running->home = waiting->home = 0;
  const std::string first = Submit(running).name, second = Submit(waiting).name;
  running->begun.Wait();
  opened_[0].devices[0]->InjectFault("the test");
  queue_->Tick();
  EXPECT_EQ(queue_->Get(second)->reason_code, Reason::kDeviceDown);
  EXPECT_EQ(waiting.use_count(), 1) << "its work is kept";
  running->may_end.Open();
  EXPECT_EQ(AwaitEnd(first).state, JobState::kFailed);
}

TEST_F(JobQueueTest, EndingTheQueueCancelsWhatRuns) {
  auto script = std::make_shared<Script>();
  script->result_bytes = 1600;
  Submit(script);
  script->begun.Wait();
  queue_->Shutdown();
  EXPECT_EQ(queue_->List().at(0).state, JobState::kCancelled);
  EXPECT_EQ(Used(), 0);
}

TEST_F(JobQueueTest, SubscribersSeePreviewsAndTheResult) {
  auto script = std::make_shared<Script>();
  script->result_bytes = 160;
  script->preview = true;
  const JobStatus job = Submit(script);
  script->begun.Wait();
  SubscribeSpec spec;
  spec.parent = job.name;
  spec.products = {Product::kBscan, Product::kMip};
  spec.plane_index = 1;
  spec.delivery = Delivery::kLossless;
  ASSERT_OK_AND_ASSIGN(const auto subscription, publisher_.Subscribe(spec, [] {}));
  script->may_end.Open();
  const JobStatus end = AwaitEnd(job.name);
  std::vector<FramePtr> frames;
  for (Delivered delivered; subscription->Take(&delivered);) frames.push_back(delivered.frame);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_FALSE(frames[0]->complete);
  EXPECT_EQ(frames[0]->product, Product::kBscan);
  EXPECT_EQ(frames[0]->shape, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(frames[1]->product, Product::kMip);
  EXPECT_EQ(frames[1]->shape, (std::vector<int64_t>{10, 4}));
  EXPECT_EQ(frames[1]->volume, end.volumes.at(0));
  EXPECT_TRUE(frames[2]->complete);
  EXPECT_EQ(frames[2]->axis, FrameAxis::kY);
  EXPECT_EQ(static_cast<const uint8_t*>(frames[2]->payload.data)[15], 7);
  absl::Status status;
  EXPECT_TRUE(subscription->Ended(&status));
}

// The names of the axes, not their positions in the array, determine a frame's plane.
TEST_F(JobQueueTest, SubscribersOfATomogramSeeItsOwnAxes) {
  auto script = std::make_shared<Script>();
  script->result_bytes = 160;  // [z, y, x] = 10, 4, 4; voxel i holds i
  script->preview = script->z_first = true;
  const JobStatus job = Submit(script);
  script->begun.Wait();
  struct Case {
    Product product;
    bool given;
    FrameAxis axis;
    int64_t index, begin, row, column;  // of voxels
    std::vector<std::string> axes;
    std::shared_ptr<Subscription> subscription = nullptr;
  };
  std::vector<Case> cases = {{Product::kBscan, false, FrameAxis::kZ, 7, 112, 4, 1, {"y", "x"}},
                             {Product::kBscan, true, FrameAxis::kZ, 2, 32, 4, 1, {"y", "x"}},
                             {Product::kBscan, true, FrameAxis::kY, 3, 12, 16, 1, {"z", "x"}},
                             {Product::kBscan, true, FrameAxis::kX, 1, 1, 16, 4, {"z", "y"}},
                             {Product::kMip, false, FrameAxis::kZ, -1, 144, 4, 1, {"y", "x"}}};
  for (Case& c : cases) {
    SubscribeSpec spec{.parent = job.name,
                       .products = {c.product},
                       .axis = c.axis,
                       .axis_given = c.given,
                       .plane_index = c.index,
                       .previews = false};
    ASSERT_OK_AND_ASSIGN(c.subscription, publisher_.Subscribe(spec, [] {}));
  }
  script->may_end.Open();
  AwaitEnd(job.name);
  for (const Case& c : cases) {
    Delivered delivered;
    ASSERT_TRUE(c.subscription->Take(&delivered)) << c.begin;
    const Frame& frame = *delivered.frame;
    EXPECT_EQ(frame.axis, c.axis);
    EXPECT_EQ(frame.axes, c.axes);
    ASSERT_EQ(frame.shape, (std::vector<int64_t>{c.axes[0] == "z" ? 10 : 4, 4}));
    for (int64_t row = 0; row < frame.shape[0]; ++row) {
      for (int64_t column = 0; column < 4; ++column) {
        EXPECT_EQ(static_cast<const uint8_t*>(frame.payload.data)[row * 4 + column],
                  c.begin + row * c.row + column * c.column);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::engine
