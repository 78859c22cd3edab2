// One job's run by itself: workspace, results, pictures, progress, turns.

#include "server/job/running_job.h"

#include <cmath>

#include "gmock/gmock.h"

#include "server/job/job_admission.h"
#include "server/job/job_executor.h"
#include "tests/server/job/job_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeJob;

/// Notes which turns a job gives up and takes.
class NotedTurns final : public DeviceTurns {
 public:
  void GiveUp(const JobPtr&) override { notes.push_back("given up"); }
  absl::Status Take(const JobPtr&, const std::stop_token&) override {
    notes.push_back("taken");
    return answer;
  }
  std::vector<std::string> notes;
  absl::Status answer = absl::OkStatus();
};

class RunningJobTest : public testing::JobPartsTest {
 protected:
  /// A job with results of [4, 4, 4] u8 and their MIPs, as the dispatcher begins it.
  JobPtr Begun(bool views = false, size_t results = 1, const std::string& name = "a") {
    JobPtr job = MakeJob(name);
    JobPlan& plan = job->plans.at(0);
    plan.results.assign(results, {.bytes = 64, .mip_bytes = 16});
    if (views) plan.view_extents[0] = plan.view_extents[1] = plan.view_extents[2] = 4;
    job->device = 0;
    EXPECT_THAT(Insert(job), IsOk());
    job->charges =
        ledger_.Reserve(0, "jobs/" + name, "", JobAdmission::NeedsOf(plan), nullptr).value();
    SetState(job, JobState::kRunning);
    return job;
  }
  static VolumeStatus Described() {
    VolumeStatus volume;
    volume.shape[0] = volume.shape[1] = volume.shape[2] = 4;
    volume.dtype = DType::kU8;
    volume.complete = true;
    return volume;
  }
  /// Memory without owner any more: of the ledger's first device.
  void ReleaseCharges(const JobPtr& job) {
    for (const auto charge : job->charges) ledger_.Release(charge);
    job->charges.clear();
  }

  /// The destinations of the commits that a job wants when its run has ended so.
  std::vector<std::string> WantedAtClose(const absl::Status& end) {
    const JobPtr job = Begun();
    job->status.spec.commit = CommitOptions{.destination = "there", .writer = {}};
    {
      RunningJob run(services_, table_, turns_, job, stream_.ref());
      EXPECT_THAT(run.results().Begin(), IsOk());
      EXPECT_THAT(run.Result(0, Described()), IsOk());
      EXPECT_THAT(run.results().Finish(), IsOk());
      EXPECT_TRUE(observer_.wanted.empty()) << "the volume is not held yet";
      run.results().Close(end.ok(), end);
    }
    ReleaseCharges(job);
    std::vector<std::string> destinations;
    for (const auto& [volume, destination] : observer_.wanted) {
      EXPECT_EQ(volume, table_.Get("jobs/a")->volumes[0]);
      destinations.push_back(destination);
    }
    return destinations;
  }

  NotedTurns turns_;
  Stream stream_ = opened_.devices[0]->NewStream(StreamPriority::kNormal).value();
};

TEST_F(RunningJobTest, MoreThanTheWorkspaceIsRefusedAndFreedMemoryComesBack) {
  JobWorkspace workspace(*opened_.devices[0], 1000);
  ASSERT_OK_AND_ASSIGN(void* const first, workspace.Allocate(800));
  EXPECT_THAT(workspace.Charge(300), IsError(absl::StatusCode::kInternal, "of 1000"));
  EXPECT_THAT(workspace.Charge(-1), IsError(absl::StatusCode::kInternal, ""));
  EXPECT_THAT(workspace.Charge(200), IsOk());
  workspace.Discharge(200);
  workspace.Free(first);
  EXPECT_THAT(workspace.Allocate(1000), IsOk());
}

TEST_F(RunningJobTest, WhatIsKeptIsReleasedWithTheWorkspace) {
  auto object = std::make_shared<int>(7);
  {
    JobWorkspace workspace(*opened_.devices[0], 1000);
    workspace.Keep(object);
    EXPECT_EQ(object.use_count(), 2);
  }
  EXPECT_EQ(object.use_count(), 1);
}

TEST_F(RunningJobTest, AResultBecomesAHeldVolumeWithDigestAndProjection) {
  const JobPtr job = Begun();
  {
    RunningJob run(services_, table_, turns_, job, stream_.ref());
    ASSERT_THAT(run.results().Begin(), IsOk());
    EXPECT_EQ(job->charges.size(), 1u) << "the slots own theirs";
    EXPECT_THAT(run.Result(1, Described()), IsError(absl::StatusCode::kInternal, "not planned"));
    VolumeStatus wrong = Described();
    wrong.shape[0] = 5;
    EXPECT_THAT(run.Result(0, wrong), IsError(absl::StatusCode::kInternal, "planned were 64"));
    ASSERT_OK_AND_ASSIGN(void* const out, run.Result(0, Described()));
    EXPECT_THAT(run.Result(0, Described()), IsError(absl::StatusCode::kInternal, "has begun"));
    ASSERT_THAT(run.device().Fill(run.stream(), out, 64, 0x07070707u), IsOk());
    run.SetDisplay(0, 1, 9);
    run.Warn("a warning");
    ASSERT_THAT(run.results().Finish(), IsOk());
    run.results().Close(/*held=*/true, absl::OkStatus());
  }
  ReleaseCharges(job);
  const JobStatus status = table_.Get("jobs/a").value();
  ASSERT_EQ(status.volumes.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, volumes_.Get(status.volumes[0]));
  EXPECT_EQ(volume.state, VolumeState::kHeld);
  EXPECT_EQ(volume.job, "jobs/a");
  EXPECT_EQ(volume.display_hi, 9);
  EXPECT_THAT(volume.digest, HasSubstr("sum64:"));
  EXPECT_THAT(volume.job_warnings, ElementsAre("a warning"));
  EXPECT_EQ(ledger_.UseOf(0).reserved, 0);
  EXPECT_GT(ledger_.UseOf(0).held, 0);
}

// How much a job makes may be known only when it runs: of pushed frames, how many are projections.
TEST_F(RunningJobTest, ASmallerResultThanPlannedGivesTheRestBack) {
  const JobPtr job = Begun();
  JobPlan& plan = job->plans.at(0);
  ReleaseCharges(job);
  plan.results = {{.bytes = 100'000, .mip_bytes = 16}};
  job->charges = ledger_.Reserve(0, "jobs/a", "", JobAdmission::NeedsOf(plan), nullptr).value();
  const int64_t planned = ledger_.UseOf(0).reserved;
  JobPlan::Result small = plan.results[0];
  small.bytes = 64;
  ASSERT_LT(small.charged_bytes(), plan.results[0].charged_bytes());
  {
    RunningJob run(services_, table_, turns_, job, stream_.ref());
    ASSERT_THAT(run.results().Begin(), IsOk());
    ASSERT_OK_AND_ASSIGN(void* const out, run.Result(0, Described()));
    EXPECT_EQ(planned - ledger_.UseOf(0).granted(),
              plan.results[0].charged_bytes() - small.charged_bytes());
    ASSERT_THAT(run.device().Fill(run.stream(), out, 64, 0x07070707u), IsOk());
    ASSERT_THAT(run.results().Finish(), IsOk());
    run.results().Close(/*held=*/true, absl::OkStatus());
  }
  ReleaseCharges(job);
  EXPECT_EQ(ledger_.UseOf(0).held, small.charged_bytes());
  ASSERT_THAT(volumes_.Discard(table_.Get("jobs/a")->volumes[0], Reason::kDiscarded, ""), IsOk());
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_F(RunningJobTest, ACommitIsWantedOfAHeldResult) {
  EXPECT_THAT(WantedAtClose(absl::OkStatus()), ElementsAre("there"));
}
TEST_F(RunningJobTest, NoCommitIsWantedOfAResultThatFailed) {
  EXPECT_THAT(WantedAtClose(absl::DataLossError("broken")), ::testing::IsEmpty());
}

TEST_F(RunningJobTest, ACommitThatBeganWithTheResultIsToldOfItsGrowthAndItsEnd) {
  enum class Case { kEnds, kFails, kIsCancelled, kCannotBegin, kIsNotWanted };
  for (const auto which :
       {Case::kEnds, Case::kFails, Case::kIsCancelled, Case::kCannotBegin, Case::kIsNotWanted}) {
    SCOPED_TRACE(static_cast<int>(which));
    const std::string name = absl::StrCat("job", static_cast<int>(which));
    const JobPtr job = Begun(false, 1, name);
    if (which != Case::kIsNotWanted)
      job->status.spec.commit = CommitOptions{.destination = "there", .writer = {}};
    observer_.grows = which != Case::kCannotBegin;
    observer_.growing.clear();
    observer_.wanted.clear();
    {
      RunningJob run(services_, table_, turns_, job, stream_.ref());
      ASSERT_THAT(run.results().Begin(), IsOk());
      EXPECT_FALSE(run.MakesInOrder(0)) << "it has not begun";
      EXPECT_FALSE(run.MakesInOrder(1));
      ASSERT_THAT(run.Result(0, Described()), IsOk());
      const bool in_order = run.MakesInOrder(0);
      EXPECT_EQ(in_order, which != Case::kCannotBegin && which != Case::kIsNotWanted);
      if (in_order) {
        EXPECT_THAT(run.Made(0, 24), IsOk());
        EXPECT_THAT(run.Made(0, 64), IsOk());
        EXPECT_THAT(run.Made(0, 65), IsError(absl::StatusCode::kInternal, "65 bytes"));
      } else {
        EXPECT_THAT(run.Made(0, 24), IsError(absl::StatusCode::kInternal, "not committed"));
      }
      EXPECT_THAT(run.Made(1, 24), IsError(absl::StatusCode::kInternal, "result 1"));
      const bool held = which != Case::kFails && which != Case::kIsCancelled;
      if (held) ASSERT_THAT(run.results().Finish(), IsOk());
      run.results().Close(held,
                          which == Case::kFails ? absl::DataLossError("broken") : absl::OkStatus());
    }
    ReleaseCharges(job);
    switch (which) {
      case Case::kEnds:
        EXPECT_THAT(observer_.growing, ElementsAre("begin there", "reach 24", "reach 64", "held"));
        break;
      case Case::kFails:
        EXPECT_THAT(observer_.growing,
                    ElementsAre("begin there", "reach 24", "reach 64", "failed broken"));
        break;
      case Case::kIsCancelled:
        EXPECT_THAT(observer_.growing, ElementsAre("begin there", "reach 24", "reach 64",
                                                   "failed the job was cancelled"));
        break;
      default: EXPECT_THAT(observer_.growing, ::testing::IsEmpty());
    }
    EXPECT_EQ(observer_.wanted.size(), which == Case::kCannotBegin ? 1u : 0u)
        << "one that could not begin begins when the volume is held";
  }
}

// Whoever commits the volume by hand then has files that say what is true of them.
TEST_F(RunningJobTest, AFailedCommitIsNoWarningOfTheVolume) {
  const JobPtr job = Begun();
  {
    RunningJob run(services_, table_, turns_, job, stream_.ref());
    ASSERT_THAT(run.results().Begin(), IsOk());
    ASSERT_THAT(run.Result(0, Described()), IsOk());
    run.Warn("of the data");
    ASSERT_TRUE(table_.NoteCommitFailed("jobs/a", "could not be committed"));
    ASSERT_THAT(run.results().Finish(), IsOk());
    run.results().Close(true, absl::OkStatus());
  }
  ReleaseCharges(job);
  const JobStatus status = table_.Get("jobs/a").value();
  EXPECT_THAT(status.warnings, ElementsAre("of the data", "could not be committed"));
  EXPECT_THAT(volumes_.Get(status.volumes.at(0))->job_warnings, ElementsAre("of the data"));
}

TEST_F(RunningJobTest, EndsOfCommitsAreTold) {
  const JobPtr job = Begun();
  ASSERT_TRUE(table_.NoteCommitted("jobs/a", "/data/there.npy"));
  ASSERT_TRUE(table_.NoteCommitFailed("jobs/a", "it stays held"));
  EXPECT_FALSE(table_.NoteCommitted("jobs/gone", "/data/there.npy"));
  EXPECT_FALSE(table_.NoteCommitFailed("jobs/gone", "it stays held"));
  const JobStatus status = table_.Get("jobs/a").value();
  EXPECT_THAT(status.commits, ElementsAre("/data/there.npy"));
  EXPECT_EQ(status.commit_failures, 1);
  EXPECT_THAT(status.warnings, ElementsAre("it stays held"));
  ReleaseCharges(job);
}

TEST_F(RunningJobTest, AResultOfAJobThatFailedIsFailedAndItsMemoryComesBack) {
  const JobPtr job = Begun();
  {
    RunningJob run(services_, table_, turns_, job, stream_.ref());
    ASSERT_THAT(run.results().Begin(), IsOk());
    ASSERT_THAT(run.Result(0, Described()), IsOk());
    EXPECT_THAT(run.BeginStored(0, Described()),
                IsError(absl::StatusCode::kInternal, "stores no results"));
    EXPECT_THAT(run.Store(0, nullptr, 1), IsError(absl::StatusCode::kInternal, "not stored"));
    run.results().Close(/*held=*/false, absl::DataLossError("broken"));
  }
  ReleaseCharges(job);
  const auto volumes = volumes_.List();
  ASSERT_EQ(volumes.size(), 1u);
  EXPECT_EQ(volumes[0].state, VolumeState::kFailed);
  EXPECT_EQ(volumes[0].reason, "broken");
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_F(RunningJobTest, AResultThatIsCompleteIsHeldWhateverBecomesOfTheJob) {
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    const std::string name = fails ? "fails" : "ends";
    const JobPtr job = Begun(false, /*results=*/3, name);
    job->status.spec.commit = CommitOptions{.destination = "there-{index}", .writer = {}};
    observer_.wanted.clear();
    std::vector<std::string> held;
    {
      RunningJob run(services_, table_, turns_, job, stream_.ref());
      ASSERT_THAT(run.results().Begin(), IsOk());
      EXPECT_THAT(run.Complete(0), IsError(absl::StatusCode::kInternal, "has not begun"));
      EXPECT_THAT(run.Complete(3), IsError(absl::StatusCode::kInternal, "result 3 of 3"));
      for (size_t i = 0; i < 2; ++i) {
        VolumeStatus volume = Described();
        volume.index = static_cast<int64_t>(i);
        ASSERT_OK_AND_ASSIGN(void* const out, run.Result(i, volume));
        const uint32_t word = 0x01010101u * static_cast<uint32_t>(i + 1);
        ASSERT_THAT(run.device().Fill(run.stream(), out, 64, word), IsOk());
        run.SetDisplay(i, 1, 9);
        ASSERT_THAT(run.Complete(i), IsOk());
        EXPECT_THAT(run.Complete(i), IsError(absl::StatusCode::kInternal, "is complete"));
        held = table_.Get("jobs/" + name)->volumes;
        ASSERT_EQ(held.size(), i + 1);
        ASSERT_OK_AND_ASSIGN(const VolumeStatus now, volumes_.Get(held[i]));
        EXPECT_EQ(now.state, VolumeState::kHeld);
        EXPECT_EQ(now.index, static_cast<int64_t>(i));
        EXPECT_EQ(now.display_hi, 9);
        EXPECT_THAT(now.digest, HasSubstr("sum64:"));
        ASSERT_EQ(observer_.wanted.size(), i + 1) << "its commit begins at once";
        EXPECT_EQ(observer_.wanted[i].first, held[i]);
      }
      // A client discards one while the job runs: its memory is free at once.
      const int64_t granted = ledger_.UseOf(0).granted();
      ASSERT_THAT(volumes_.Discard(held[0], Reason::kDiscarded, "test"), IsOk());
      EXPECT_LT(ledger_.UseOf(0).granted(), granted);
      ASSERT_THAT(run.Result(2, Described()), IsOk());
      EXPECT_EQ(table_.Get("jobs/" + name)->volumes.size(), 3u);
      if (!fails) ASSERT_THAT(run.results().Finish(), IsOk());
      run.results().Close(!fails, fails ? absl::DataLossError("broken") : absl::OkStatus());
    }
    ReleaseCharges(job);
    const std::vector<std::string> names = table_.Get("jobs/" + name)->volumes;
    EXPECT_EQ(names.size(), fails ? 2u : 3u) << "a job that failed has those that were held";
    EXPECT_EQ(names[1], held[1]);
    EXPECT_EQ(observer_.wanted.size(), fails ? 2u : 3u);
    EXPECT_EQ(volumes_.Get(held[1])->state, VolumeState::kHeld);
    for (const VolumeStatus& volume : volumes_.List()) {
      if (volume.state == VolumeState::kHeld)
        EXPECT_THAT(volumes_.Discard(volume.name, Reason::kDiscarded, "test"), IsOk());
    }
    EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
  }
}

TEST_F(RunningJobTest, NothingIsCompleteAfterACancel) {
  const JobPtr job = Begun();
  {
    RunningJob run(services_, table_, turns_, job, stream_.ref());
    ASSERT_THAT(run.results().Begin(), IsOk());
    ASSERT_THAT(run.Result(0, Described()), IsOk());
    ASSERT_THAT(table_.Cancel("jobs/a", Reason::kCancelled, "enough"), IsOk());
    const absl::Status end = run.Complete(0);
    EXPECT_THAT(end, IsError(absl::StatusCode::kCancelled, ""));
    run.results().Close(/*held=*/false, end);
  }
  ReleaseCharges(job);
  EXPECT_TRUE(table_.Get("jobs/a")->volumes.empty());
  EXPECT_EQ(volumes_.List()[0].state, VolumeState::kFailed);
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_F(RunningJobTest, PreviewsAreDueForSubscribersAndNotTooOften) {
  const JobPtr job = Begun(/*views=*/true);
  RunningJob run(services_, table_, turns_, job, stream_.ref());
  EXPECT_FALSE(run.PreviewDue()) << "nobody looks";
  ASSERT_OK_AND_ASSIGN(
      const auto subscription,
      publisher_.Subscribe(
          {.parent = "jobs/a", .products = {Product::kBscan}, .delivery = Delivery::kDropOldest},
          [] {}));
  EXPECT_TRUE(run.PreviewDue());
  ASSERT_EQ(run.Wanted().size(), 1u);
  const std::vector<uint8_t> plane(16, 5);
  DeviceBuffer image = run.device().Allocate(16).value();
  ASSERT_THAT(run.device().CopyToDevice(run.stream(), image.data(), plane.data(), 16), IsOk());
  ASSERT_THAT(run.Publish({.key = run.Wanted()[0].key,
                           .data = image.data(),
                           .dtype = DType::kU8,
                           .rows = 4,
                           .columns = 4,
                           .row_axis = "x",
                           .column_axis = "z"}),
              IsOk());
  Delivered delivered;
  ASSERT_TRUE(subscription->Take(&delivered));
  EXPECT_FALSE(delivered.frame->complete);
  EXPECT_EQ(static_cast<const uint8_t*>(delivered.frame->payload.data)[15], 5);
  EXPECT_FALSE(run.PreviewDue()) << "a tenth of a second has not passed";
  clock_.Advance(0.2);
  EXPECT_TRUE(run.PreviewDue());
  ReleaseCharges(job);
}

TEST_F(RunningJobTest, ProgressIsThatOfTheStage) {
  const JobPtr job = Begun();
  RunningJob run(services_, table_, turns_, job, stream_.ref());
  run.Stage(JobStage::kSweep, 4, 0, 0.5);
  EXPECT_EQ(observer_.told, 1);
  clock_.Advance(2);
  run.Step(2, 0.125);
  run.Log("a line");
  run.Found(DispersionEstimate());
  const JobStatus status = table_.Get("jobs/a").value();
  EXPECT_EQ(status.stage, JobStage::kSweep);
  EXPECT_DOUBLE_EQ(status.fraction, 0.25);
  EXPECT_NEAR(status.eta_seconds, 6, 1e-6);
  ASSERT_EQ(status.history.size(), 1u);
  EXPECT_EQ(status.history[0].residual_norm, 0.125);
  EXPECT_EQ(status.log.back().text, "a line");
  EXPECT_TRUE(std::holds_alternative<DispersionEstimate>(status.finding));
  for (int64_t i = 0; i < 400; ++i) run.Step(i, NAN);
  EXPECT_EQ(table_.Get("jobs/a")->history.size(), kJobHistoryKept);
  EXPECT_EQ(table_.Get("jobs/a")->step_count, 401u);
  ReleaseCharges(job);
}

TEST_F(RunningJobTest, AWaitWithoutTheDeviceIsBetweenTwoTurns) {
  const JobPtr job = Begun();
  RunningJob run(services_, table_, turns_, job, stream_.ref());
  const auto wait = [&] { return turns_.notes.push_back("waits"), absl::OkStatus(); };
  EXPECT_THAT(run.WithoutDevice(wait, {}), IsOk());
  EXPECT_THAT(turns_.notes, ElementsAre("given up", "waits", "taken"));
  EXPECT_THAT(run.WithoutDevice([] { return absl::DataLossError("input"); }, {}),
              IsError(absl::StatusCode::kDataLoss, "input"));
  EXPECT_EQ(turns_.notes.size(), 4u) << "a wait that failed takes no turn";
  turns_.answer = absl::CancelledError("stopped");
  EXPECT_THAT(run.WithoutDevice(wait, {}), IsError(absl::StatusCode::kCancelled, "stopped"));
  ReleaseCharges(job);
}

TEST_F(RunningJobTest, TheExecutorEndsAJobAndReturnsAllMemory) {
  JobExecutor executor(services_, table_, turns_);
  const JobPtr job = Begun();
  Stream stream;
  executor.Execute(job, stream);
  EXPECT_TRUE(stream) << "the first job makes the worker's stream";
  EXPECT_EQ(table_.Get("jobs/a")->state, JobState::kDone);
  EXPECT_EQ(table_.Get("jobs/a")->fraction, 1);
  EXPECT_EQ(job->work, nullptr);
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

TEST_F(RunningJobTest, TheExecutorTellsACancelFromAnEnd) {
  JobExecutor executor(services_, table_, turns_);
  const JobPtr job = Begun();
  ASSERT_THAT(table_.Cancel("jobs/a", Reason::kSessionExpired, "its session"), IsOk());
  Stream stream;
  executor.Execute(job, stream);
  const JobStatus status = table_.Get("jobs/a").value();
  EXPECT_EQ(status.state, JobState::kCancelled);
  EXPECT_EQ(status.reason, "its session");
  EXPECT_EQ(ledger_.UseOf(0).granted(), 0);
}

}  // namespace
}  // namespace octavo::engine
