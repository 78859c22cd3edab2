// Which job gets which device, with workers that do nothing: the test ends each job.

#include "server/job/job_dispatcher.h"

#include <thread>

#include "gmock/gmock.h"

#include "tests/server/job/job_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeJob;

class JobDispatcherTest : public testing::JobPartsTest {
 protected:
  JobDispatcherTest() : JobPartsTest(2) {}
  ~JobDispatcherTest() override {
    dispatcher_.Stop();
    workers_.Shutdown();
  }

  JobStatus Submit(const JobPtr& job) {
    auto status = dispatcher_.Submit(job);
    EXPECT_THAT(status, IsOk());
    return status.ok() ? *status : JobStatus();
  }
  /// As the worker of a job does.
  void End(const JobPtr& job) {
    for (const auto charge : job->charges) ledger_.Release(charge);
    job->charges.clear();
    SetState(job, JobState::kDone);
    dispatcher_.End(job);
  }
  JobState StateOf(const JobPtr& job) { return table_.Get(job->status.name)->state; }

  JobWorkers workers_{2, [](const JobPtr&, Stream&) {}};
  JobDispatcher dispatcher_{table_, workers_, services_};
};

TEST_F(JobDispatcherTest, JobsGoRoundTheDevicesAndWaitForThem) {
  const auto a = MakeJob("a", 0, "", {0, 1}), b = MakeJob("b", 0, "", {0, 1}),
             c = MakeJob("c", 0, "", {0, 1});
  EXPECT_EQ(Submit(a).device, "devices/0");
  EXPECT_EQ(Submit(b).device, "devices/1");
  const JobStatus waits = Submit(c);
  EXPECT_EQ(waits.state, JobState::kQueued);
  EXPECT_EQ(waits.reason_code, Reason::kWaitingForDevice);
  End(b);
  EXPECT_EQ(StateOf(c), JobState::kRunning);
  EXPECT_EQ(c->device, 1);
}

TEST_F(JobDispatcherTest, OthersOvertakeAJobThatWaitsForMemory) {
  ASSERT_OK_AND_ASSIGN(
      const auto charges,
      ledger_.Reserve(
          0, "scans/a", "",
          {{.kind = model::NeedKind::kVolumeSlots, .bytes = kBudgetBytes - 4096, .count = 1}},
          nullptr));
  const auto large = MakeJob("large", 0, "", {0}, 8192), small = MakeJob("small", 0, "", {0});
  EXPECT_EQ(Submit(large).reason_code, Reason::kWaitingForMemory);
  EXPECT_EQ(Submit(small).state, JobState::kRunning);
  End(small);
  EXPECT_EQ(StateOf(large), JobState::kQueued);
  ledger_.Release(charges[0]);
  const int told = observer_.told;
  dispatcher_.Tick();
  EXPECT_EQ(StateOf(large), JobState::kRunning);
  EXPECT_EQ(observer_.told, told + 1);
  dispatcher_.Tick();
  EXPECT_EQ(observer_.told, told + 1) << "nothing has changed";
}

TEST_F(JobDispatcherTest, AJobThatReturnsComesBeforeItsEqualsAndAfterHigherPriorities) {
  const auto returns = MakeJob("returns"), other = MakeJob("other"), equal = MakeJob("equal"),
             urgent = MakeJob("urgent", 1);
  Submit(returns);
  Submit(other);
  dispatcher_.GiveUp(returns);
  EXPECT_EQ(StateOf(other), JobState::kRunning);
  Submit(equal);
  Submit(urgent);
  absl::Status taken = absl::UnknownError("");
  std::thread waiter([&] { taken = dispatcher_.Take(returns, returns->stop.get_token()); });
  while (table_.Get("jobs/returns")->log.back().text.find("waits for its device") ==
         std::string::npos)
    std::this_thread::yield();
  End(other);
  EXPECT_EQ(StateOf(urgent), JobState::kRunning);
  End(urgent);
  waiter.join();
  EXPECT_THAT(taken, IsOk());
  EXPECT_EQ(StateOf(equal), JobState::kQueued);
  End(returns);
  EXPECT_EQ(StateOf(equal), JobState::kRunning);
}

TEST_F(JobDispatcherTest, AJobThatIsCancelledStopsWaitingForItsTurn) {
  const auto returns = MakeJob("returns"), other = MakeJob("other");
  Submit(returns);
  Submit(other);
  dispatcher_.GiveUp(returns);
  absl::Status taken;
  std::thread waiter([&] { taken = dispatcher_.Take(returns, returns->stop.get_token()); });
  ASSERT_THAT(table_.Cancel("jobs/returns", Reason::kCancelled, ""), IsOk());
  waiter.join();
  EXPECT_THAT(taken, IsError(absl::StatusCode::kCancelled, ""));
  EXPECT_EQ(StateOf(other), JobState::kRunning) << "nobody else is disturbed";
}

TEST_F(JobDispatcherTest, AJobWithoutAHealthyDeviceFailsAndItsWorkIsReleasedByTheTick) {
  const auto runs = MakeJob("runs", 0, "", {0}), waits = MakeJob("waits", 0, "", {0});
  int released = 0;
  waits->work = std::make_unique<testing::IdleWork>(1024, -1, &released);
  Submit(runs);
  Submit(waits);
  opened_.devices[0]->InjectFault("the test");
  dispatcher_.Tick();
  EXPECT_EQ(table_.Get("jobs/waits")->reason_code, Reason::kDeviceDown);
  EXPECT_EQ(released, 1);
}

TEST_F(JobDispatcherTest, NoJobBeginsAfterTheStop) {
  dispatcher_.Stop();
  EXPECT_EQ(Submit(MakeJob("a")).state, JobState::kQueued);
}

}  // namespace
}  // namespace octavo::engine
