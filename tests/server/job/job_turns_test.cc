// Jobs that wait for their input: other jobs use the device meanwhile, and the waiting jobs return
// to it in their turn.

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "gmock/gmock.h"

#include "tests/server/job/job_queue_fixture.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using ::testing::ElementsAre;
using testing::Script;

class JobTurnsTest : public engine::testing::JobQueueTest {
 protected:
  std::shared_ptr<Script> Make(const char* name) {
    auto script = std::make_shared<Script>();
    script->order = name;
    script->log = &log_;
    script->log_mutex = &log_mutex_;
    script->home = 0;
    return script;
  }
  std::shared_ptr<Script> Waiting(const char* name) {
    auto script = Make(name);
    script->waits = true;
    return script;
  }

  /// Number of threads of this process that run jobs.
  static int Workers() {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(task.path() / "comm") >> name;
      count += name == "oct-job";
    }
    return count;
  }

  std::vector<std::string> log_;
  std::mutex log_mutex_;
};

TEST_F(JobTurnsTest, OthersFinishWhileOneWaits) {
  const auto waiting = Waiting("scan"), other = Make("file");
  waiting->result_bytes = other->result_bytes = 1600;
  other->may_end.Open();
  waiting->may_end.Open();
  const JobStatus scan = Submit(waiting);
  waiting->begun.Wait();
  const int64_t kept = Used();
  EXPECT_GE(kept, 1600) << "it keeps its memory";
  EXPECT_EQ(AwaitEnd(Submit(other).name).state, JobState::kDone);
  EXPECT_EQ(queue_->Get(scan.name)->state, JobState::kRunning);
  EXPECT_GE(queue_->RunningOn(0), 1);
  waiting->input.Open();
  EXPECT_EQ(AwaitEnd(scan.name).state, JobState::kDone);
  EXPECT_THAT(log_, ElementsAre("scan", "file", "scan again"));
}

TEST_F(JobTurnsTest, TheOneThatComesBackWaitsForTheOneThatHasTheDevice) {
  const auto waiting = Waiting("scan"), other = Make("file");
  waiting->may_end.Open();
  const JobStatus scan = Submit(waiting);
  waiting->begun.Wait();
  const JobStatus file = Submit(other);
  other->begun.Wait();
  waiting->input.Open();
  Await(scan.name, [](const JobStatus& job) {
    return !job.log.empty() && job.log.back().text.starts_with("waits for its device");
  });
  {
    std::lock_guard lock(log_mutex_);
    EXPECT_THAT(log_, ElementsAre("scan", "file"));
  }
  other->may_end.Open();
  EXPECT_EQ(AwaitEnd(file.name).state, JobState::kDone);
  EXPECT_EQ(AwaitEnd(scan.name).state, JobState::kDone);
  EXPECT_THAT(log_, ElementsAre("scan", "file", "scan again"));
}

TEST_F(JobTurnsTest, BeforeItsEqualsAndAfterHigherPriorities) {
  const auto first = Waiting("first"), second = Waiting("second"), blocker = Make("blocker"),
             equal = Make("equal"), urgent = Make("urgent");
  for (const auto& script : {first, second, equal, urgent}) script->may_end.Open();
  std::vector<std::string> names = {Submit(first, Spec(0, "alice")).name};
  first->begun.Wait();
  names.push_back(Submit(second, Spec(0, "alice")).name);
  second->begun.Wait();
  names.push_back(Submit(blocker, Spec(0, "bob")).name);
  blocker->begun.Wait();
  names.push_back(Submit(equal, Spec(0, "carol")).name);
  names.push_back(Submit(urgent, Spec(3, "alice")).name);
  second->input.Open();  // is the first to come back
  Await(names[1], [](const JobStatus& job) {
    return job.log.back().text.starts_with("waits for its device");
  });
  first->input.Open();
  Await(names[0], [](const JobStatus& job) {
    return job.log.back().text.starts_with("waits for its device");
  });
  blocker->may_end.Open();
  for (const auto& name : names) EXPECT_EQ(AwaitEnd(name).state, JobState::kDone);
  EXPECT_THAT(log_, ElementsAre("first", "second", "blocker", "urgent", "second again",
                                "first again", "equal"));
}

TEST_F(JobTurnsTest, CancelledWhileItWaitsForInputOrDevice) {
  const auto blocker = Make("blocker"), input = Waiting("input"), device = Waiting("device");
  input->result_bytes = device->result_bytes = 1600;
  const JobStatus for_input = Submit(input), for_device = Submit(device);
  input->begun.Wait();
  device->begun.Wait();
  const JobStatus block = Submit(blocker);
  blocker->begun.Wait();
  device->input.Open();
  Await(for_device.name, [](const JobStatus& job) {
    return job.log.back().text.starts_with("waits for its device");
  });
  for (const auto& name : {for_input.name, for_device.name}) {
    EXPECT_EQ(queue_->Cancel(name)->state, JobState::kCancelling);
    EXPECT_EQ(AwaitEnd(name).state, JobState::kCancelled);
  }
  EXPECT_EQ(queue_->Get(block.name)->state, JobState::kRunning) << "nobody else is disturbed";
  blocker->may_end.Open();
  EXPECT_EQ(AwaitEnd(block.name).state, JobState::kDone);
  EXPECT_EQ(Used(), 0);
  // The device still works.
  const auto last = Make("last");
  last->may_end.Open();
  EXPECT_EQ(AwaitEnd(Submit(last).name).state, JobState::kDone);
}

TEST_F(JobTurnsTest, ManyThatWaitedLeaveOneThread) {
  std::vector<std::shared_ptr<Script>> scans;
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    scans.push_back(Waiting("scan"));
    scans.back()->may_end.Open();
    names.push_back(Submit(scans.back()).name);
    scans.back()->begun.Wait();
  }
  EXPECT_GE(Workers(), 5);  // for a moment, a new thread has its parent's name
  for (const auto& scan : scans) scan->input.Open();
  for (const auto& name : names) EXPECT_EQ(AwaitEnd(name).state, JobState::kDone);
  // Each thread ends after its job has ended, and a tick joins it.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (Workers() > 1 && std::chrono::steady_clock::now() < until) {
    queue_->Tick();
    std::this_thread::yield();
  }
  EXPECT_EQ(Workers(), 1);
  const auto last = Make("last");
  last->may_end.Open();
  EXPECT_EQ(AwaitEnd(Submit(last).name).state, JobState::kDone);
}

TEST_F(JobTurnsTest, AWaitThatFailsFailsTheJobWithoutTheDevice) {
  const auto blocker = Make("blocker"), waiting = Waiting("scan");
  waiting->end_of_wait = WithInfo(absl::DeadlineExceededError("silence"),
                                  {.reason = Reason::kSourceStalled, .field = "", .numbers = {}});
  const JobStatus scan = Submit(waiting);
  waiting->begun.Wait();
  const JobStatus block = Submit(blocker);
  blocker->begun.Wait();
  waiting->input.Open();
  // The other job still has the device.
  EXPECT_EQ(AwaitEnd(scan.name).reason_code, Reason::kSourceStalled);
  EXPECT_EQ(queue_->Get(block.name)->state, JobState::kRunning);
  blocker->may_end.Open();
  EXPECT_EQ(AwaitEnd(block.name).state, JobState::kDone);
}

/// Waits an hour for input, then takes ten steps of a second each.
class HourLongScan final : public JobWork {
 public:
  HourLongScan(octavo::testing::FakeClock& clock, std::vector<double>& etas)
      : clock_(clock), etas_(etas) {}
  JobKind kind() const override { return JobKind::kTomography; }
  absl::StatusOr<JobPlan> Plan(Device&) const override { return JobPlan{}; }
  std::string Parameters() const override { return "{}"; }
  absl::Status Run(JobRun& run, std::stop_token) override {
    run.Stage(JobStage::kProjections, 100, 0, 0);
    clock_.Advance(3600);
    run.Step(100, 0);
    etas_.push_back(queue->List().at(0).eta_seconds);
    run.Stage(JobStage::kReconstruct, 10, 0, 1);
    for (int64_t step = 1; step <= 3; ++step) {
      clock_.Advance(1);
      run.Step(step, 0);
      etas_.push_back(queue->List().at(0).eta_seconds);
    }
    return absl::OkStatus();
  }
  JobQueue* queue = nullptr;

 private:
  octavo::testing::FakeClock& clock_;
  std::vector<double>& etas_;
};

TEST_F(JobTurnsTest, TimeSpentWaitingIsNoTimePerStep) {
  octavo::testing::FakeClock clock;
  std::vector<double> etas;
  auto work = std::make_unique<HourLongScan>(clock, etas);
  JobQueue::Context context{.devices = DeviceSet({{opened_[0].devices[0].get(), frames_[0]}}),
                            .ledger = &ledger_,
                            .volumes = &volumes_,
                            .publisher = &publisher_,
                            .clock = &clock,
                            .server_id = "testtest",
                            .observer = &observer_};
  JobQueue queue(std::move(context));
  work->queue = &queue;
  ASSERT_TRUE(queue.Submit(Spec(), std::move(work), nullptr).ok());
  while (!queue.Idle()) std::this_thread::yield();
  ASSERT_EQ(etas.size(), 4u);
  EXPECT_EQ(etas[0], 0) << "nothing is known yet";
  EXPECT_NEAR(etas[1], 9, 1e-6);
  EXPECT_NEAR(etas[3], 7, 1e-6);
}

TEST_F(JobTurnsTest, EndingTheQueueEndsThoseThatWait) {
  const auto blocker = Make("blocker"), input = Waiting("input"), device = Waiting("device");
  Submit(input);
  const JobStatus for_device = Submit(device);
  input->begun.Wait();
  device->begun.Wait();
  Submit(blocker);
  blocker->begun.Wait();
  device->input.Open();
  Await(for_device.name, [](const JobStatus& job) {
    return job.log.back().text.starts_with("waits for its device");
  });
  queue_->Shutdown();
  for (const auto& job : queue_->List()) EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_EQ(Used(), 0);
}

}  // namespace
}  // namespace octavo::engine
