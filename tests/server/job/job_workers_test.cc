#include "server/job/job_workers.h"

#include <atomic>
#include <set>
#include <thread>

#include "gpu/base/failpoint.h"
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
