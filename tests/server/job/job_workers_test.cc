#include "server/job/job_workers.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <sys/resource.h>
#include <thread>

#include "gpu/base/failpoint.h"
#include "gpu/device/host/host_stream.h"
#include "tests/server/job/job_parts.h"
#include "tests/server/job/job_queue_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::Gate;
using testing::MakeJob;

TEST(JobWorkersTest, EachJobHasAThreadOfItsOwnAndOneIsUsedAgain) {
  Gate may_end;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> begun{0};
  JobWorkers workers(2, [&](const JobPtr&, Stream&) {
    {
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    ++begun;
    may_end.Wait();
  });
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(workers.Prepare(1), IsOk());
    workers.Give(1, MakeJob("a"));
  }
  EXPECT_EQ(workers.Busy(0), 0);
  EXPECT_EQ(workers.Busy(1), 3);
  while (begun < 3) std::this_thread::yield();
  EXPECT_EQ(threads.size(), 3u);
  may_end.Open();
  while (workers.Busy(1) > 0) std::this_thread::yield();
  ASSERT_THAT(workers.Prepare(1), IsOk());
  workers.Give(1, MakeJob("b"));
  while (begun < 4) std::this_thread::yield();
  workers.JoinEnded();
  EXPECT_EQ(threads.size(), 3u);
}

TEST(JobWorkersTest, JobsOnTheHostForJobsLeaveTheCoresToOthers) {
  const int usual = ::getpriority(PRIO_PROCESS, 0);
  std::mutex mutex;
  std::map<std::string, int> niceness;  // of the thread of each job
  std::atomic<int> stream = -1;         // of a host stream that a job there opens
  const OpenedDevices opened = OpenDevices("host").value();
  JobWorkers workers(
      2,
      [&](const JobPtr& job, Stream&) {
        std::lock_guard lock(mutex);
        niceness[job->status.name] = ::getpriority(PRIO_PROCESS, 0);
        if (job->status.name != "jobs/there") return;
        const Stream opens = *opened.devices[0]->NewStream(StreamPriority::kLow);
        host::AsHost(opens.ref()).Enqueue(host::Task([&] {
          stream = ::getpriority(PRIO_PROCESS, 0);
          return absl::OkStatus();
        }));
        (void)opens.ref().Synchronize();
      },
      /*host_for_jobs=*/true);
  for (const auto& [device, name] : {std::pair(0, "here"), std::pair(1, "there")}) {
    ASSERT_THAT(workers.Prepare(device), IsOk());
    workers.Give(device, MakeJob(name));
  }
  while (workers.Busy(0) + workers.Busy(1) > 0) std::this_thread::yield();
  EXPECT_EQ(niceness.at("jobs/here"), usual);
  EXPECT_EQ(niceness.at("jobs/there"), std::min(usual + 5, 19));
  EXPECT_EQ(stream, std::min(usual + 5, 19));
}

TEST(JobWorkersTest, AThreadThatIsIdleCanBeGivenAnotherJobBeforeItReturns) {
  Gate may_return;
  std::atomic<int> begun{0};
  JobWorkers* all = nullptr;
  JobWorkers workers(1, [&](const JobPtr& job, Stream&) {
    ++begun;
    all->SetIdle(0, job);
    may_return.Wait();
  });
  all = &workers;
  ASSERT_THAT(workers.Prepare(0), IsOk());
  workers.Give(0, MakeJob("a"));
  while (workers.Busy(0) > 0 || begun < 1) std::this_thread::yield();
  ASSERT_THAT(workers.Prepare(0), IsOk());
  workers.Give(0, MakeJob("b"));
  EXPECT_EQ(workers.Busy(0), 1);
  EXPECT_EQ(begun, 1) << "the only thread has not returned";
  may_return.Open();
  while (begun < 2) std::this_thread::yield();
}

TEST(JobWorkersTest, ShutdownWaitsForTheJobs) {
  std::atomic<int> ended{0};
  JobWorkers workers(1, [&](const JobPtr&, Stream&) { ++ended; });
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(workers.Prepare(0), IsOk());
    workers.Give(0, MakeJob("a"));
  }
  workers.Shutdown();
  EXPECT_EQ(ended, 4);
  EXPECT_EQ(workers.Busy(0), 0);
  workers.Shutdown();
}

TEST(JobWorkersTest, AThreadThatCannotStartIsAnError) {
  JobWorkers workers(1, [](const JobPtr&, Stream&) {});
  ArmFailpoint("thread_started:throw=system_error");
  EXPECT_THAT(workers.Prepare(0), IsError(absl::StatusCode::kResourceExhausted, ""));
  ArmFailpoint("");
  EXPECT_THAT(workers.Prepare(0), IsOk());
}

}  // namespace
}  // namespace octavo::engine
