// Operations of a whole engine: verbs, jobs, waits, and the end of the server.

#include <condition_variable>
#include <mutex>

#include "gmock/gmock.h"

#include "tests/server/engine/memory_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using ::testing::ElementsAre;

class OperationsTest : public testing::MemoryTest {
 protected:
  std::string HeldVolume() {
    const std::string scan = Finished(Submit(Spec(1)).name).name;
    return engine_->volumes().List({.parent = scan}).at(0).name;
  }
};

TEST_F(OperationsTest, ARetryOfEachVerbFindsItsOperation) {
  const std::string name = HeldVolume();
  const RequestKey request{.id = "one", .body = "body"}, other{.id = "one", .body = "other"};
  const auto commit = [&](const RequestKey& key) {
    return engine_->volumes().Commit(name, To("a"), key);
  };
  const auto spill = [&](const RequestKey& key) {
    return engine_->volumes().Spill(name, Tier::kHost, key);
  };
  const auto restore = [&](const RequestKey& key) { return engine_->volumes().Restore(name, key); };
  const auto derive = [&](const RequestKey& key) {
    return BeginDerive(
        {.name = name, .operations = {OpSpec{CropOp{.start = {}, .count = {1, 0, 0}}}}}, key);
  };
  std::vector<OperationKind> kinds;
  const auto check = [&](const auto& verb) {
    ASSERT_OK_AND_ASSIGN(const std::string first, verb(request));
    ASSERT_OK_AND_ASSIGN(const std::string running, verb(request));
    EXPECT_EQ(running, first);
    ASSERT_OK_AND_ASSIGN(const OperationStatus end, Ended(first));
    EXPECT_EQ(end.target, name);
    EXPECT_EQ(end.request_id, "one");
    kinds.push_back(end.kind);
    ASSERT_OK_AND_ASSIGN(const std::string ended, verb(request));
    EXPECT_EQ(ended, first);
    EXPECT_EQ(InfoOf(verb(other).status()).reason, Reason::kIdempotencyMismatch);
  };
  check(derive);
  check(spill);
  check(restore);
  check(commit);
  EXPECT_THAT(kinds, ElementsAre(OperationKind::kDerive, OperationKind::kSpill,
                                 OperationKind::kRestore, OperationKind::kCommit));
  EXPECT_EQ(engine_->operations().List().size(), 4u);
  EXPECT_EQ(engine_->operations().List()[0].kind, OperationKind::kCommit) << "newest first";
}

TEST_F(OperationsTest, ARefusedVerbLeavesNoOperation) {
  const std::string name = HeldVolume();
  EXPECT_EQ(InfoOf(engine_->volumes().Commit("volumes/none", To("a")).status()).reason,
            Reason::kNoVolume);
  EXPECT_EQ(InfoOf(engine_->volumes().Restore("volumes/none").status()).reason, Reason::kNoVolume);
  EXPECT_THAT(Commit(name, "a"), IsOk());
  EXPECT_EQ(InfoOf(engine_->volumes().Spill(name, Tier::kHost).status()).reason,
            Reason::kVolumeState);
  const std::string second = HeldVolume();
  EXPECT_EQ(InfoOf(engine_->volumes().Commit(second, To("a")).status()).reason,
            Reason::kDestinationExists);
  EXPECT_EQ(engine_->volumes().Get(second)->state, VolumeState::kHeld);
  EXPECT_EQ(engine_->operations().List().size(), 1u);
}

// What fails later is the error of the operation, and the volume is as it was.
TEST_F(OperationsTest, TheErrorOfAnOperation) {
  const std::string name = HeldVolume();
  ArmFailpoint("manifest_written:errno=28");
  ASSERT_OK_AND_ASSIGN(const std::string commit, engine_->volumes().Commit(name, To("full")));
  const auto end = Ended(commit);
  EXPECT_EQ(InfoOf(end.status()).reason, Reason::kDiskFull) << end.status();
  ASSERT_OK_AND_ASSIGN(const OperationStatus now, engine_->operations().Get(commit));
  EXPECT_EQ(now.state, OperationState::kFailed);
  EXPECT_FALSE(now.commit.has_value());
  EXPECT_EQ(engine_->volumes().Get(name)->state, VolumeState::kHeld);
  EXPECT_TRUE(std::filesystem::is_empty(temp_ / "data"));
  EXPECT_THAT(Commit(name, "full"), IsOk());
}

TEST_F(OperationsTest, TheEndOfTheServerEndsThem) {
  std::vector<std::string> volumes;
  for (int i = 0; i < 8; ++i) volumes.push_back(HeldVolume());
  std::vector<std::string> operations;
  for (const std::string& volume : volumes) {
    ASSERT_OK_AND_ASSIGN(operations.emplace_back(),
                         engine_->volumes().Commit(volume, To(volume.substr(8))));
  }
  engine_->BeginDrain();
  const auto derived = BeginDerive({.name = volumes[0], .operations = {OpSpec{CropOp{}}}});
  EXPECT_EQ(InfoOf(derived.status()).reason, Reason::kDraining);
  engine_->EndNow("the test ends it");
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto end = Ended(operations[i]);
    const VolumeState state = engine_->volumes().Get(volumes[i])->state;
    if (end.ok()) {
      EXPECT_EQ(state, VolumeState::kCommitted);
    } else {
      EXPECT_EQ(InfoOf(end.status()).reason, Reason::kCommitCancelled);
      EXPECT_EQ(state, VolumeState::kHeld);
    }
  }
  Until([&] { return engine_->Idle(); });
}

TEST(OperationOfAJob, HasWhatTheJobHas) {
  JobStatus job;
  job.name = "jobs/a-1";
  job.spec.request_id = "mine";
  job.created = {.monotonic_ns = 1'000'000'000, .unix_ns = 5};
  job.state = JobState::kQueued;
  job.volumes = {"volumes/a"};
  const TimePoint now{.monotonic_ns = 4'000'000'000, .unix_ns = 9};
  OperationStatus operation = OperationOf(job, now);
  EXPECT_EQ(operation.name, "operations/a-1");
  EXPECT_EQ(operation.target, "jobs/a-1");
  EXPECT_EQ(operation.kind, OperationKind::kJob);
  EXPECT_EQ(operation.request_id, "mine");
  EXPECT_EQ(operation.state, OperationState::kRunning);
  EXPECT_EQ(operation.progress.stage, WorkStage::kWaiting);
  EXPECT_EQ(operation.elapsed_seconds, 3);
  EXPECT_THAT(operation.volumes, ElementsAre("volumes/a"));
  job.started = job.created;
  job.state = JobState::kRunning;
  job.fraction = 0.5;
  operation = OperationOf(job, now);
  EXPECT_EQ(operation.progress.stage, WorkStage::kComputing);
  EXPECT_EQ(operation.progress.fraction, 0.5);
  job.ended = {.monotonic_ns = 3'000'000'000, .unix_ns = 8};
  for (const auto& [of_job, state] :
       {std::pair(JobState::kDone, OperationState::kSucceeded),
        std::pair(JobState::kFailed, OperationState::kFailed),
        std::pair(JobState::kCancelled, OperationState::kCancelled)}) {
    job.state = of_job;
    job.reason = "why";
    job.reason_code = Reason::kSessionExpired;
    job.error = absl::DataLossError("lost");
    operation = OperationOf(job, now);
    EXPECT_EQ(operation.state, state);
    EXPECT_EQ(operation.elapsed_seconds, 2) << "until its end";
    if (state == OperationState::kSucceeded) EXPECT_THAT(operation.error, IsOk());
    if (state == OperationState::kFailed) EXPECT_EQ(operation.error, job.error);
    if (state == OperationState::kCancelled) {
      EXPECT_THAT(operation.error, IsError(absl::StatusCode::kCancelled, "why"));
      EXPECT_EQ(InfoOf(operation.error).reason, Reason::kSessionExpired);
    }
  }
}

// -- waits

TEST_F(OperationsTest, WaitsForOwnWorkAreNotInTheWayOfWatches) {
  constexpr int64_t kOwn = 16, kWatches = 3;
  for (const security::Role role : {security::Role::kOperator, security::Role::kAdmin}) {
    Stop();
    config_.quotas = {};
    ASSERT_THAT(config_.quotas.AddException("ada watches=3"), IsOk());
    Start();
    const security::Owner ada{.name = "ada", .project = "", .role = role};
    const security::Owner bob{.name = "bob", .project = "", .role = role};
    memory::QuotaBook& quotas = engine_->quotas();
    const auto used = [&] { return quotas.UseOf(ada)[3].used; };
    std::vector<memory::QuotaCharge> watches;
    for (int64_t i = 0; i < kWatches; ++i) {
      ASSERT_OK_AND_ASSIGN(memory::QuotaCharge watch,
                           quotas.Take(ada, memory::QuotaKind::kWatches, 1, "a watch"));
      watches.push_back(std::move(watch));
    }
    std::vector<WaitPlace> waits;
    for (int64_t i = 0; i < kOwn; ++i) {
      ASSERT_OK_AND_ASSIGN(WaitPlace wait, engine_->operations().TakePlace(std::nullopt, ada));
      waits.push_back(std::move(wait));
    }
    EXPECT_EQ(used(), kWatches);
    const absl::Status refused = engine_->operations().TakePlace(std::nullopt, ada).status();
    EXPECT_THAT(refused, IsError(absl::StatusCode::kResourceExhausted, "the wait for its end"));
    EXPECT_EQ(InfoOf(refused).reason, Reason::kQuota);
    EXPECT_THAT(engine_->operations().TakePlace(std::nullopt, bob), IsOk());
    // One more takes the place of a watch, and an end gives back what it took.
    watches.pop_back();
    {
      ASSERT_OK_AND_ASSIGN(const WaitPlace more,
                           engine_->operations().TakePlace(std::nullopt, ada));
      EXPECT_EQ(used(), kWatches);
    }
    EXPECT_EQ(used(), kWatches - 1);
    waits.pop_back();
    EXPECT_THAT(engine_->operations().TakePlace(std::nullopt, ada), IsOk());
    EXPECT_EQ(used(), kWatches - 1);
  }
}

class OperationWaits : public ::testing::Test {
 protected:
  using Watches = StatusWatches<OperationStatus>;
  absl::StatusOr<OperationStatus> Get(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (forgotten_) return absl::NotFoundError("no operation " + name);
    return now_;
  }
  void Set(OperationState state) {
    {
      const std::lock_guard lock(mutex_);
      now_.state = state;
    }
    watches_.Wake();
  }
  std::future<absl::StatusOr<OperationStatus>> Wait(
      std::optional<std::chrono::steady_clock::time_point> until,
      std::function<bool()> over = [] { return false; }) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<OperationStatus>>>();
    watches_.Wait(
        "operations/a", until,
        [promise](const absl::StatusOr<OperationStatus>& end) { promise->set_value(end); },
        std::move(over));
    return promise->get_future();
  }

  std::mutex mutex_;
  OperationStatus now_;
  bool forgotten_ = false;
  Watches watches_{[this](const std::string& name) { return Get(name); }};
};

TEST_F(OperationWaits, EndWithTheOperation) {
  auto first = Wait(std::nullopt),
       second = Wait(std::chrono::steady_clock::now() + std::chrono::hours(1));
  Set(OperationState::kCancelling);  // a wait ends at the final state only
  Set(OperationState::kSucceeded);
  EXPECT_EQ(first.get()->state, OperationState::kSucceeded);
  EXPECT_EQ(second.get()->state, OperationState::kSucceeded);
}

TEST_F(OperationWaits, EndWhenTheirTimeIsOver) {
  const auto begun = std::chrono::steady_clock::now();
  for (const auto wait : {std::chrono::milliseconds(0), std::chrono::milliseconds(120),
                          std::chrono::milliseconds(3)}) {
    const auto until = std::chrono::steady_clock::now() + wait;
    EXPECT_EQ(Wait(until).get()->state, OperationState::kRunning);
    EXPECT_GE(std::chrono::steady_clock::now(), until);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60));
}

TEST_F(OperationWaits, EndWhenTheOperationIsForgotten) {
  auto wait = Wait(std::nullopt);
  {
    const std::lock_guard lock(mutex_);
    forgotten_ = true;
  }
  watches_.Wake();
  EXPECT_THAT(wait.get(), IsError(absl::StatusCode::kNotFound, "operations/a"));
}

// A caller that is gone leaves nothing behind, although the operation goes on.
TEST_F(OperationWaits, WhoHasGoneIsForgotten) {
  const auto kept = std::make_shared<int>(0);
  std::atomic<bool> gone{false};
  auto wait = Wait(std::nullopt, [kept, &gone] { return gone.load(); });
  EXPECT_GT(kept.use_count(), 1);
  gone = true;
  watches_.Wake();
  while (kept.use_count() > 1) std::this_thread::yield();
  Set(OperationState::kSucceeded);
  EXPECT_THROW((void)wait.get(), std::future_error) << "nobody is told";
}

}  // namespace
}  // namespace octavo::engine
