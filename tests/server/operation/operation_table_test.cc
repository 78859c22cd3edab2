#include "server/operation/operation_table.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "gpu/base/status.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OperationTableTest : public ::testing::Test {
 protected:
  class Observer final : public OperationObserver {
   public:
    void OnOperationsChanged() override { ++told; }
    std::atomic<int> told{0};
  };
  explicit OperationTableTest(OperationTable::Limits limits = {})
      : table_(&clock_, "test", &observer_, limits) {}

  OperationTable::Begun Begin(const RequestKey& request = {},
                              OperationKind kind = OperationKind::kCommit) {
    auto begun = table_.Begin(kind, "volumes/a", request);
    EXPECT_THAT(begun, IsOk());
    return begun.ok() ? *begun : OperationTable::Begun{};
  }
  Reason RefusedFor(const RequestKey& request, OperationKind kind = OperationKind::kCommit) {
    return InfoOf(table_.Begin(kind, "volumes/a", request).status()).reason;
  }
  /// A whole operation.
  std::string Done(const std::string& id = "") {
    const OperationTable::Begun begun = Begin({.id = id, .body = id});
    begun.run->Started();
    begun.run->Finish(absl::OkStatus());
    return begun.name;
  }

  FakeClock clock_;
  Observer observer_;
  OperationTable table_;
};

TEST_F(OperationTableTest, TheLifeOfAnOperation) {
  const OperationTable::Begun begun = Begin();
  EXPECT_THAT(begun.name, HasSubstr("operations/test-"));
  EXPECT_EQ(InfoOf(table_.Get(begun.name).status()).reason, Reason::kNoOperation)
      << "the verb may still be refused";
  EXPECT_TRUE(table_.List().empty());
  begun.run->Started({"volumes/b"});
  OperationStatus now = *table_.Get(begun.name);
  EXPECT_EQ(now.state, OperationState::kRunning);
  EXPECT_EQ(now.target, "volumes/a");
  EXPECT_EQ(now.progress.stage, WorkStage::kWaiting);
  EXPECT_THAT(now.volumes, ElementsAre("volumes/b"));
  clock_.Advance(2);
  const WorkControl control = begun.run->control();
  control.Report({.stage = WorkStage::kWriting, .done_bytes = 5, .total_bytes = 10});
  now = *table_.Get(begun.name);
  EXPECT_EQ(now.progress.done_bytes, 5);
  EXPECT_EQ(now.elapsed_seconds, 2);
  begun.run->Finish(absl::OkStatus(), storage::CommitOutcome{.path = "/data/a"});
  clock_.Advance(3);
  now = *table_.Get(begun.name);
  EXPECT_EQ(now.state, OperationState::kSucceeded);
  EXPECT_EQ(now.commit->path, "/data/a");
  EXPECT_EQ(now.progress.done_bytes, 10);
  EXPECT_EQ(now.progress.fraction, 1);
  EXPECT_EQ(now.elapsed_seconds, 2) << "until its end";
  // What has ended does not change.
  control.Report({.stage = WorkStage::kSyncing});
  begun.run->Finish(absl::InternalError("late"));
  EXPECT_EQ(table_.Cancel(begun.name)->state, OperationState::kSucceeded);
  EXPECT_EQ(table_.Get(begun.name)->progress.stage, WorkStage::kWriting);
  EXPECT_THAT(table_.Get(begun.name)->error, IsOk());
}

TEST_F(OperationTableTest, TheObserverLearnsOfStatesAndStages) {
  const OperationTable::Begun begun = Begin();
  EXPECT_EQ(observer_.told, 0);
  begun.run->control().Report({.stage = WorkStage::kPreparing});
  EXPECT_EQ(observer_.told, 0) << "nobody can look it up yet";
  begun.run->Started();
  EXPECT_EQ(observer_.told, 1);
  const uint64_t events = table_.Get(begun.name)->event_count;
  begun.run->control().Report({.stage = WorkStage::kPreparing, .done_bytes = 1});
  EXPECT_EQ(observer_.told, 1) << "progress is looked at from time to time";
  EXPECT_GT(table_.Get(begun.name)->event_count, events);
  begun.run->control().Report({.stage = WorkStage::kWriting});
  EXPECT_EQ(observer_.told, 2);
  begun.run->Finish(absl::OkStatus());
  EXPECT_EQ(observer_.told, 3);
}

TEST_F(OperationTableTest, AStopIsRequestedAndTheWorkSaysHowItEnded) {
  for (const auto& [end, state] :
       {std::pair(absl::CancelledError("as asked"), OperationState::kCancelled),
        std::pair(absl::OkStatus(), OperationState::kSucceeded),
        std::pair(absl::DataLossError("worse"), OperationState::kFailed)}) {
    const OperationTable::Begun begun = Begin();
    begun.run->Started();
    EXPECT_FALSE(begun.run->control().stop.stop_requested());
    EXPECT_EQ(table_.Cancel(begun.name)->state, OperationState::kCancelling);
    EXPECT_TRUE(begun.run->control().stop.stop_requested());
    EXPECT_EQ(table_.Cancel(begun.name)->state, OperationState::kCancelling) << "idempotent";
    begun.run->Finish(end);
    EXPECT_EQ(table_.Get(begun.name)->state, state);
    EXPECT_EQ(table_.Get(begun.name)->error, end);
  }
  EXPECT_EQ(InfoOf(table_.Cancel("operations/none").status()).reason, Reason::kNoOperation);
}

TEST_F(OperationTableTest, ARetryFindsTheFirstRunningOrEnded) {
  const RequestKey request{.id = "once", .body = "this"};
  const OperationTable::Begun first = Begin(request);
  EXPECT_EQ(RefusedFor(request), Reason::kInProgress) << "it may still be refused";
  first.run->Started();
  EXPECT_EQ(Begin(request).name, first.name);
  EXPECT_EQ(Begin(request).run, nullptr);
  EXPECT_EQ(RefusedFor({.id = "once", .body = "that"}), Reason::kIdempotencyMismatch);
  EXPECT_EQ(RefusedFor({.id = "once", .body = "thi"}), Reason::kIdempotencyMismatch);
  first.run->Finish(absl::DataLossError("failed"));
  EXPECT_EQ(Begin(request).name, first.name) << "however it ended";
  EXPECT_EQ(RefusedFor({.id = "once", .body = "that"}), Reason::kIdempotencyMismatch);
  // Another verb may use the same id; and without an id, each is a new one.
  EXPECT_NE(Begin(request, OperationKind::kSpill).run, nullptr);
  EXPECT_NE(Begin({.id = "", .body = "this"}).run, nullptr);
  EXPECT_NE(Begin({.id = "", .body = "this"}).run, nullptr);
}

TEST_F(OperationTableTest, ARefusedVerbLeavesNothing) {
  const RequestKey request{.id = "once", .body = "this"};
  for (const bool explicitly : {true, false}) {
    OperationTable::Begun begun = Begin(request);
    if (explicitly) begun.run->Refuse();
    const std::string name = begun.name;
    if (!explicitly) begun.run = nullptr;
    EXPECT_EQ(InfoOf(table_.Get(name).status()).reason, Reason::kNoOperation);
    const OperationTable::Begun again = Begin({.id = "once", .body = "another"});
    EXPECT_NE(again.run, nullptr) << "the id is free";
    again.run->Refuse();
  }
  EXPECT_EQ(table_.Count().running["COMMIT"], 0);
  EXPECT_TRUE(table_.List().empty());
}

// The work may end before the verb's call has come to its end.
TEST_F(OperationTableTest, WorkThatEndsAtOnceIsStartedByItsEnd) {
  const OperationTable::Begun begun = Begin();
  begun.run->Finish(absl::OkStatus());
  begun.run->Started({"late"});
  EXPECT_EQ(table_.Get(begun.name)->state, OperationState::kSucceeded);
  EXPECT_TRUE(table_.Get(begun.name)->volumes.empty());
  EXPECT_EQ(table_.Count().kept, 1);
}

TEST_F(OperationTableTest, AbandonedWorkHasFailed) {
  OperationTable::Begun begun = Begin();
  begun.run->Started();
  begun.run = nullptr;
  EXPECT_EQ(table_.Get(begun.name)->state, OperationState::kFailed);
  EXPECT_THAT(table_.Get(begun.name)->error,
              IsError(absl::StatusCode::kInternal, "gave up the operation before its end"));
  EXPECT_EQ(table_.Count().running["COMMIT"], 0);
}

TEST_F(OperationTableTest, CountsHaveEveryKindFromTheStart) {
  auto counts = table_.Count();
  EXPECT_EQ(counts.running.size(), 4u);
  EXPECT_EQ(counts.finished.size(), 12u);
  for (const auto& [kind, n] : counts.running) EXPECT_EQ(n, 0) << kind;
  const auto commit = Begin(), derive = Begin({}, OperationKind::kDerive);
  commit.run->Started();
  derive.run->Started();
  derive.run->Finish(absl::CancelledError(""));
  counts = table_.Count();
  EXPECT_EQ(counts.running["COMMIT"], 1);
  EXPECT_EQ(counts.running["DERIVE"], 0);
  EXPECT_EQ((counts.finished[{"DERIVE", "CANCELLED"}]), 1);
  EXPECT_EQ(counts.kept, 1);
  EXPECT_EQ(counts.forgotten, 0);
}

TEST_F(OperationTableTest, TheNewestComesFirst) {
  const std::string a = Done(), b = Done(), c = Done();
  std::vector<std::string> names;
  for (const OperationStatus& one : table_.List()) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre(c, b, a));
}

TEST_F(OperationTableTest, CancelAllAsksEachThatRuns) {
  const auto a = Begin(), b = Begin(), ended = Begin();
  for (const auto& one : {a, b, ended}) one.run->Started();
  ended.run->Finish(absl::OkStatus());
  table_.CancelAll();
  EXPECT_TRUE(a.run->control().stop.stop_requested());
  EXPECT_TRUE(b.run->control().stop.stop_requested());
  EXPECT_EQ(table_.Get(a.name)->state, OperationState::kCancelling);
  EXPECT_EQ(table_.Get(ended.name)->state, OperationState::kSucceeded);
}

TEST_F(OperationTableTest, WhatEndedIsForgottenAfterAnHour) {
  const std::string first = Done("one");
  clock_.Advance(1800);
  const std::string second = Done("two");
  clock_.Advance(1801);
  const auto gone = table_.Get(first);
  EXPECT_EQ(InfoOf(gone.status()).reason, Reason::kNoOperation);
  EXPECT_THAT(gone, IsError(absl::StatusCode::kNotFound, "60 minutes"));
  EXPECT_THAT(table_.Get(second), IsOk());
  EXPECT_EQ(table_.Count().forgotten, 1);
  EXPECT_EQ(table_.Count().kept, 1);
  EXPECT_NE(Begin({.id = "one", .body = "another"}).run, nullptr) << "its id is free";
}

TEST_F(OperationTableTest, ACancelFindsNoOperationThatEndedAnHourAgo) {
  const std::string name = Done("one");
  clock_.Advance(3599);
  EXPECT_THAT(table_.Cancel(name), IsOk());
  clock_.Advance(2);
  EXPECT_EQ(InfoOf(table_.Cancel(name).status()).reason, Reason::kNoOperation);
  EXPECT_EQ(table_.Count().forgotten, 1);
}

class BoundedTest : public OperationTableTest {
 protected:
  BoundedTest()
      : OperationTableTest(
            {.running = 3, .running_bytes = 100, .ended = 5, .ended_bytes = 20'000}) {}
};

TEST_F(BoundedTest, TheOldestEndedAreForgotten) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back(Done(absl::StrCat(i)));
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(table_.Get(names[static_cast<size_t>(i)]).ok(), i >= 7) << i;
  EXPECT_EQ(table_.List().size(), 5u);
  EXPECT_EQ(table_.Count().forgotten, 7);
  EXPECT_EQ(RefusedFor({.id = "7", .body = "another"}), Reason::kIdempotencyMismatch);
  EXPECT_NE(Begin({.id = "6", .body = "another"}).run, nullptr);
}

TEST_F(BoundedTest, LargeOnesAreForgottenEarlier) {
  const std::string small = Done();
  const auto large = Begin();
  large.run->Started();
  large.run->Finish(absl::InternalError(std::string(19'500, 'x')));
  EXPECT_FALSE(table_.Get(small).ok());
  EXPECT_FALSE(table_.Get(large.name).ok()) << "it is too large by itself";
  EXPECT_EQ(table_.Count().kept, 0);
}

TEST_F(BoundedTest, TooManyAtOnceAreRefused) {
  const auto a = Begin(), b = Begin();
  auto c = Begin();
  const auto busy = table_.Begin(OperationKind::kSpill, "volumes/a", {});
  EXPECT_THAT(busy, IsError(absl::StatusCode::kResourceExhausted, "try again"));
  EXPECT_EQ(InfoOf(busy.status()).reason, Reason::kBusy);
  c.run->Refuse();
  b.run->Finish(absl::OkStatus());
  const auto d = Begin({.id = "", .body = std::string(90, 'x')});
  EXPECT_EQ(RefusedFor({.id = "", .body = std::string(11, 'x')}), Reason::kBusy) << "their bytes";
  EXPECT_NE(Begin({.id = "", .body = std::string(10, 'x')}).run, nullptr);
}

// Many threads begin, retry, cancel, look and end; each operation ends once, and nothing is left.
TEST_F(OperationTableTest, FromManyThreads) {
  constexpr int kThreads = 4, kRounds = 500;
  std::atomic<int> begun{0}, found{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kRounds; ++i) {
          const auto mine = table_.Begin(OperationKind::kCommit, "volumes/a",
                                         {.id = absl::StrCat(i), .body = absl::StrCat(i)});
          if (!mine.ok()) {
            EXPECT_EQ(InfoOf(mine.status()).reason, Reason::kInProgress);
            continue;
          }
          if (mine->run == nullptr) {
            ++found;
            EXPECT_THAT(table_.Cancel(mine->name), IsOk());
            continue;
          }
          ++begun;
          mine->run->Started();
          mine->run->control().Report({.stage = WorkStage::kWriting});
          const bool stop = mine->run->control().stop.stop_requested() || (i + t) % 3 == 0;
          mine->run->Finish(stop ? absl::CancelledError("") : absl::OkStatus());
          EXPECT_TRUE(IsFinal(table_.Get(mine->name)->state));
        }
      });
    }
  }
  EXPECT_EQ(begun, kRounds);
  const auto counts = table_.Count();
  EXPECT_EQ(counts.kept, kRounds);
  int64_t finished = 0;
  for (const auto& [key, n] : counts.finished) finished += n;
  EXPECT_EQ(finished, kRounds);
}

TEST_F(OperationTableTest, AnOperationIsItsOwners) {
  const OperationTable::Begun begun =
      Begin({.id = "r", .body = "b", .owner = {.name = "ada", .project = "retina"}});
  begun.run->Started();
  EXPECT_EQ(table_.Get(begun.name)->owner.name, "ada");
  const security::Principal bob{.name = "bob", .proof = security::Proof::kToken};
  const absl::Status refused = table_.Cancel(begun.name, bob).status();
  EXPECT_THAT(refused, IsError(absl::StatusCode::kPermissionDenied,
                               absl::StrCat(begun.name, " belongs to ada (project retina)")));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kNotOwner);
  EXPECT_EQ(table_.Get(begun.name)->state, OperationState::kRunning);
  // A retry is one of the same caller.
  EXPECT_EQ(Begin({.id = "r", .body = "b", .owner = {.name = "ada", .project = "retina"}}).name,
            begun.name);
  EXPECT_EQ(RefusedFor({.id = "r", .body = "b", .owner = {.name = "bob"}}),
            Reason::kIdempotencyMismatch);
  const security::Principal colleague{
      .name = "eve", .project = "retina", .proof = security::Proof::kToken};
  EXPECT_EQ(table_.Cancel(begun.name, colleague)->state, OperationState::kCancelling);
  begun.run->Finish(absl::CancelledError("so"));
}

}  // namespace
}  // namespace octavo::engine
