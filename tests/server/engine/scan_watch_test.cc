// Watches of objects that end, and of objects that the engine forgets.

#include "server/engine/scan_watch.h"

#include <atomic>
#include <chrono>
#include <future>
#include <new>

#include "gtest/gtest.h"

#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;

// A watcher must learn that no more events will come.
TEST(JobWatches, WhatIsForgottenIsToldOnce) {
  std::atomic<bool> forgotten{false};
  const auto get = [&](const std::string& name) -> absl::StatusOr<JobStatus> {
    if (forgotten) return absl::NotFoundError("no job " + name);
    JobStatus job;
    job.name = name;
    job.state = JobState::kRunning;
    return job;
  };
  JobWatches watches(get);
  std::promise<JobState> running;
  std::promise<absl::Status> gone;
  bool told = false;
  const auto handle = watches.Add("jobs/a", [&](const absl::StatusOr<JobStatus>& job) {
    if (!job.ok()) {
      gone.set_value(job.status());  // throws on a second call
    } else if (!std::exchange(told, true)) {
      running.set_value(job->state);
    }
  });
  EXPECT_EQ(running.get_future().get(), JobState::kRunning);
  forgotten = true;
  watches.Wake();
  auto end = gone.get_future();
  ASSERT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "nobody is told";
  EXPECT_THAT(end.get(), IsError(absl::StatusCode::kNotFound, "jobs/a"));
  watches.Stop();
}

// What breaks off, as for lack of memory, is told in the next turn, and the others are told at
// once.
TEST(JobWatches, AWatchThatBreaksOffIsToldLater) {
  std::atomic<bool> throws{true};
  const auto get = [](const std::string& name) -> absl::StatusOr<JobStatus> {
    JobStatus job;
    job.name = name;
    job.state = JobState::kDone;
    return job;
  };
  JobWatches watches(get);
  std::promise<void> broken, other;
  const auto never = [] { return false; };
  watches.Wait(
      "jobs/a", std::nullopt,
      [&](const absl::StatusOr<JobStatus>&) {
        if (throws.exchange(false)) throw std::bad_alloc();
        broken.set_value();
      },
      never);
  watches.Wait(
      "jobs/b", std::nullopt, [&](const absl::StatusOr<JobStatus>&) { other.set_value(); }, never);
  for (auto* told : {&broken, &other}) {
    ASSERT_EQ(told->get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  EXPECT_FALSE(throws);
  watches.Stop();
}

// All waits share one thread, so their number is bounded, and a turn looks at each name once.
TEST(JobWatches, WaitsAreBoundedAndLookOnceATurn) {
  std::atomic<bool> done{false};
  std::atomic<int64_t> looks{0};
  const auto get = [&](const std::string& name) -> absl::StatusOr<JobStatus> {
    ++looks;
    JobStatus job;
    job.name = name;
    job.state = done ? JobState::kDone : JobState::kRunning;
    return job;
  };
  JobWatches watches(get);
  std::atomic<size_t> told{0};
  std::promise<void> all;
  const auto never = [] { return false; };
  for (size_t i = 0; i < JobWatches::kMost; ++i) {
    watches.Wait(
        "jobs/a", std::nullopt,
        [&](const absl::StatusOr<JobStatus>& job) {
          ASSERT_TRUE(job.ok() && job->state == JobState::kDone);
          if (++told == JobWatches::kMost) all.set_value();
        },
        never);
  }
  absl::Status full;
  watches.Wait(
      "jobs/a", std::nullopt, [&](const absl::StatusOr<JobStatus>& job) { full = job.status(); },
      never);
  EXPECT_THAT(full, IsError(absl::StatusCode::kResourceExhausted, "4096 calls wait"));
  EXPECT_EQ(InfoOf(full).reason, Reason::kBusy);
  EXPECT_EQ(told, 0u);
  const int64_t before = looks;
  done = true;
  watches.Wake();
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_LT(looks - before, 100) << "turns, and not waits";
  // There is room again.
  std::promise<void> later;
  for (bool taken = false; !taken;) {
    watches.Wait(
        "jobs/a", std::nullopt,
        [&](const absl::StatusOr<JobStatus>& job) {
          if (job.ok()) later.set_value();
        },
        never);
    taken = later.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    ASSERT_TRUE(taken);
  }
  watches.Stop();
}

// Work that is to be waited for begins when it has its place.
TEST(JobWatches, APlaceIsKeptForAWait) {
  std::atomic<bool> done{false};
  const auto get = [&](const std::string& name) -> absl::StatusOr<JobStatus> {
    JobStatus job;
    job.name = name;
    job.state = done ? JobState::kDone : JobState::kRunning;
    return job;
  };
  JobWatches watches(get);
  const auto never = [] { return false; };
  const auto ignored = [](const absl::StatusOr<JobStatus>&) {};
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<void> place, watches.TakePlace());
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<void> unused, watches.TakePlace());
  for (size_t i = 2; i < JobWatches::kMost; ++i)
    watches.Wait("jobs/a", std::nullopt, ignored, never);
  absl::Status full;
  const auto keep = [&](const absl::StatusOr<JobStatus>& job) { full = job.status(); };
  watches.Wait("jobs/a", std::nullopt, keep, never);
  EXPECT_EQ(InfoOf(full).reason, Reason::kBusy) << "the places are taken";
  EXPECT_EQ(InfoOf(watches.TakePlace().status()).reason, Reason::kBusy);
  std::promise<JobState> told;
  watches.Wait(
      "jobs/a", std::nullopt,
      [&](const absl::StatusOr<JobStatus>& job) { told.set_value(job->state); }, never,
      std::move(place));
  unused = nullptr;
  EXPECT_TRUE(watches.TakePlace().ok()) << "one that is not used is free again";
  done = true;
  watches.Wake();
  auto state = told.get_future();
  ASSERT_EQ(state.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(state.get(), JobState::kDone);
  watches.Stop();
}

}  // namespace
}  // namespace octavo::engine
