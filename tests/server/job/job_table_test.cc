#include "server/job/job_table.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "gpu/base/status.h"
#include "tests/server/job/job_parts.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IdleWork;
using testing::MakeJob;

class JobTableTest : public testing::JobPartsTest {};

TEST_F(JobTableTest, AJobIsFoundListedAndHasItsPlace) {
  ASSERT_THAT(Insert(MakeJob("a")), IsOk());
  ASSERT_THAT(Insert(MakeJob("urgent", 1)), IsOk());
  EXPECT_EQ(table_.Get("jobs/a")->queue_position, 2);
  const auto list = table_.List();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "jobs/urgent") << "newest first";
  EXPECT_EQ(list[0].queue_position, 1);
  EXPECT_THAT(table_.Get("jobs/none"), IsError(absl::StatusCode::kNotFound, "jobs/none"));
}

TEST_F(JobTableTest, StatesAreTimedLoggedAndCounted) {
  const JobPtr job = MakeJob("a");
  ASSERT_THAT(Insert(job), IsOk());
  clock_.Advance(2);
  SetState(job, JobState::kRunning);
  EXPECT_FALSE(table_.Idle());
  clock_.Advance(3);
  SetState(job, JobState::kDone, Reason::kCompleted);
  EXPECT_TRUE(table_.Idle());
  SetState(job, JobState::kRunning);
  const JobStatus status = table_.Get("jobs/a").value();
  EXPECT_EQ(status.state, JobState::kDone) << "an impossible transition changes nothing";
  EXPECT_EQ(status.log_count, 2u);
  Stats stats;
  table_.AddTo(&stats);
  EXPECT_EQ(stats.jobs_by_state.at("DONE"), 1);
  EXPECT_EQ((stats.jobs_finished.at({"reprocess", "COMPLETED"})), 1);
  EXPECT_EQ(stats.job_queue_seconds.count, 1);
  EXPECT_EQ(stats.job_run_seconds.at("reprocess").count, 1);
}

TEST_F(JobTableTest, WhatHasChangedIsToldOnce) {
  auto changed = [&, seen = uint64_t{0}]() mutable {
    std::vector<std::string> names;
    for (const JobStatus& job : table_.ChangedSince(&seen))
      names.push_back(absl::StrCat(job.name, " ", Name(job.state)));
    return names;
  };
  EXPECT_THAT(changed(), ElementsAre());
  const JobPtr a = MakeJob("a");
  ASSERT_THAT(Insert(a), IsOk());
  ASSERT_THAT(Insert(MakeJob("b")), IsOk());
  EXPECT_THAT(changed(), ElementsAre("jobs/a QUEUED", "jobs/b QUEUED"));
  EXPECT_THAT(changed(), ElementsAre());
  SetState(a, JobState::kRunning);
  SetState(a, JobState::kDone, Reason::kCompleted);
  EXPECT_THAT(changed(), ElementsAre("jobs/a DONE"));
}

TEST_F(JobTableTest, ARequestIdMakesOneJob) {
  const JobPtr job = MakeJob("a");
  job->status.spec.request_id = "r";
  job->status.spec.request_digest = "body";
  EXPECT_FALSE(table_.Earlier(job->status.spec)->has_value());
  ASSERT_THAT(Insert(job), IsOk());
  EXPECT_EQ((*table_.Earlier(job->status.spec))->name, "jobs/a");
  JobSpec other = job->status.spec;
  other.request_digest = "another";
  EXPECT_EQ(InfoOf(table_.Earlier(other).status()).reason, Reason::kIdempotencyMismatch);
}

TEST_F(JobTableTest, CancelsAtOnceWhatWaitsAndAsksWhatRuns) {
  int released = 0;
  const JobPtr waits = MakeJob("waits"), runs = MakeJob("runs"), late = MakeJob("late");
  waits->work = std::make_unique<IdleWork>(1024, -1, &released);
  for (const JobPtr& job : {waits, runs, late}) ASSERT_THAT(Insert(job), IsOk());
  SetState(runs, JobState::kRunning);
  SetState(late, JobState::kRunning);
  late->finishing = true;
  const auto cancel = [&](const char* name) {
    return table_.Cancel(name, Reason::kCancelled, "why")->state;
  };
  EXPECT_EQ(cancel("jobs/waits"), JobState::kCancelled);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(table_.Get("jobs/waits")->reason, "before it began: why");
  EXPECT_EQ(cancel("jobs/runs"), JobState::kCancelling);
  EXPECT_TRUE(runs->stop.stop_requested());
  EXPECT_EQ(cancel("jobs/late"), JobState::kRunning) << "its results are being handed out";
  EXPECT_FALSE(late->stop.stop_requested());
}

TEST_F(JobTableTest, ADrainEndsWhatWaitsAndTakesNothingNew) {
  const JobPtr waits = MakeJob("waits"), runs = MakeJob("runs");
  ASSERT_THAT(Insert(waits), IsOk());
  ASSERT_THAT(Insert(runs), IsOk());
  SetState(runs, JobState::kRunning);
  EXPECT_EQ(table_.BeginDrain().size(), 1u);
  EXPECT_EQ(table_.Get("jobs/waits")->reason_code, Reason::kDrained);
  EXPECT_EQ(table_.Get("jobs/runs")->state, JobState::kRunning);
  EXPECT_THAT(Insert(MakeJob("new")), IsError(absl::StatusCode::kUnavailable, "draining"));
}

TEST_F(JobTableTest, AsManyWaitAsTheQueueTakes) {
  for (int i = 0; i < 10'000; ++i) ASSERT_THAT(Insert(MakeJob(absl::StrCat(i))), IsOk());
  const absl::Status refused = Insert(MakeJob("more"));
  EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "10000 jobs wait already"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kQueueFull);
  EXPECT_EQ(table_.List().front().queue_position, 10'000);
  ASSERT_THAT(table_.Cancel("jobs/17", Reason::kCancelled, "a client"), IsOk());
  EXPECT_EQ(table_.List().front().queue_position, 9'999) << "one before it went";
  ASSERT_THAT(Insert(MakeJob("urgent", 1)), IsOk());
  const auto page = table_.List(std::numeric_limits<uint64_t>::max(), 3);
  ASSERT_EQ(page.size(), 3u);
  EXPECT_EQ(page[0].queue_position, 1);
  EXPECT_EQ(page[1].queue_position, 10'000);
  EXPECT_EQ(page[2].queue_position, 9'999);
}

TEST_F(JobTableTest, WarningsCountOnceAndAreBounded) {
  const JobPtr job = MakeJob("a");
  job->plans.at(0).warnings = {"of the plan"};
  ASSERT_THAT(Insert(job), IsOk());
  MutexLock lock(table_.mutex());
  table_.Warn(*job, "of the plan");
  EXPECT_THAT(job->status.warnings, ElementsAre("of the plan"));
  EXPECT_THAT(job->status.log.back().text, HasSubstr("warning: of the plan"));
  for (int i = 0; i < 100; ++i) table_.Warn(*job, std::to_string(i));
  EXPECT_EQ(job->status.warnings.size(), kJobWarningsKept);
  for (int i = 0; i < 1000; ++i) table_.Record(*job, std::to_string(i));
  EXPECT_EQ(job->status.log.size(), kJobHistoryKept);
  EXPECT_EQ(job->status.log.back().text, "999");
}

TEST_F(JobTableTest, TheOldestThatEndedAreForgottenWithTheirRequests) {
  constexpr int kEnded = 1003;
  const JobPtr runs = MakeJob("runs");
  ASSERT_THAT(Insert(runs), IsOk());
  for (int i = 0; i < kEnded; ++i) {
    const JobPtr job = MakeJob(std::to_string(i));
    job->status.spec.request_id = std::to_string(i);
    ASSERT_THAT(Insert(job), IsOk());
    SetState(job, JobState::kCancelled);
  }
  {
    MutexLock lock(table_.mutex());
    table_.ForgetOld();
  }
  EXPECT_EQ(table_.List().size(), 1001u);
  EXPECT_THAT(table_.Get("jobs/runs"), IsOk()) << "it has not ended";
  EXPECT_THAT(table_.Get("jobs/2"), IsError(absl::StatusCode::kNotFound, "1000"));
  EXPECT_THAT(table_.Get("jobs/3"), IsOk());
  JobSpec forgotten;
  forgotten.request_id = "2";
  EXPECT_FALSE(table_.Earlier(forgotten)->has_value());
}

TEST_F(JobTableTest, NoneIsForgottenBeforeItsEndWasTold) {
  uint64_t seen = 0;
  (void)table_.ChangedSince(&seen);
  for (int i = 0; i < 1003; ++i) {
    const JobPtr job = MakeJob(std::to_string(i));
    ASSERT_THAT(Insert(job), IsOk());
    SetState(job, JobState::kCancelled);
  }
  const auto forget = [&] {
    MutexLock lock(table_.mutex());
    table_.ForgetOld();
  };
  forget();
  EXPECT_THAT(table_.Get("jobs/0"), IsOk());
  EXPECT_EQ(table_.ChangedSince(&seen).size(), 1003u);
  forget();
  EXPECT_THAT(table_.Get("jobs/2"), IsError(absl::StatusCode::kNotFound, "1000"));
}

TEST_F(JobTableTest, AJobWithImagesIsATopicWhileItLives) {
  const JobPtr job = MakeJob("a");
  for (int64_t& extent : job->plans.at(0).view_extents) extent = 4;
  const SubscribeSpec look{.parent = "jobs/a", .products = {Product::kMip}};
  EXPECT_THAT(publisher_.Subscribe(look, [] {}), IsError(absl::StatusCode::kNotFound, "jobs/a"));
  ASSERT_THAT(Insert(job), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto subscription, publisher_.Subscribe(look, [] {}));
  absl::Status status;
  EXPECT_FALSE(subscription->Ended(&status));
  SetState(job, JobState::kFailed);
  EXPECT_TRUE(subscription->Ended(&status));
}

TEST_F(JobTableTest, OnlyAJobThatWaitsForAPushHasAPort) {
  const JobPtr job = MakeJob("a");
  ASSERT_THAT(Insert(job), IsOk());
  EXPECT_EQ(InfoOf(table_.ProjectionPortOf("jobs/a").status()).reason, Reason::kNotPush);
  SetState(job, JobState::kCancelled);
  EXPECT_EQ(InfoOf(table_.ProjectionPortOf("jobs/a").status()).reason, Reason::kJobState);
}

TEST_F(JobTableTest, AJobIsItsOwners) {
  const JobPtr job = MakeJob("a");
  job->status.spec.caller.principal = {.name = "ada", .proof = security::Proof::kToken};
  ASSERT_THAT(Insert(job), IsOk());
  const security::Principal ada{.name = "ada", .proof = security::Proof::kToken};
  const security::Principal bob{.name = "bob", .proof = security::Proof::kToken};
  for (const absl::Status& refused :
       {table_.Cancel("jobs/a", Reason::kCancelled, "so", &bob).status(),
        table_.ProjectionPortOf("jobs/a", &bob).status()}) {
    EXPECT_THAT(refused, IsError(absl::StatusCode::kPermissionDenied, "jobs/a belongs to ada"));
    EXPECT_EQ(InfoOf(refused).reason, Reason::kNotOwner);
  }
  EXPECT_EQ(table_.Get("jobs/a")->state, JobState::kQueued);
  EXPECT_EQ(InfoOf(table_.ProjectionPortOf("jobs/a", &ada).status()).reason, Reason::kNotPush);
  EXPECT_EQ(table_.Cancel("jobs/a", Reason::kCancelled, "so", &ada)->state, JobState::kCancelled);
}

}  // namespace
}  // namespace octavo::engine
