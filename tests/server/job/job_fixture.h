#pragma once

// A queue with one device of each backend, for tests of the kinds of jobs.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "server/engine/job_kinds.h"
#include "server/job/job_queue.h"
#include "tests/support/device/backend_param.h"
#include "tests/support/news.h"
#include "tests/support/news_of_jobs.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine::testing {

class JobFixture : public octavo::testing::BackendTest {
 protected:
  JobFixture() {
    frames_ = std::make_shared<FramePool>(&device_, 16 << 20);
    queue_ =
        std::make_unique<JobQueue>(JobQueue::Context{.devices = DeviceSet({{&device_, frames_}}),
                                                     .ledger = &ledger_,
                                                     .volumes = &store_,
                                                     .publisher = &publisher_,
                                                     .clock = &clock_,
                                                     .server_id = "testtest",
                                                     .observer = &observer_});
  }

  /// Steps wake no waiter, so check again after a while.
  template <class F>
  void Await(F when) {
    news_.Await(std::move(when), std::chrono::milliseconds(50));
  }
  absl::StatusOr<JobStatus> SubmitTo(const JobSpec& spec, const JobEnvironment& environment) {
    OCTAVO_ASSIGN_OR_RETURN(auto work, MakeJobWork(spec, environment));
    return queue_->Submit(spec, std::move(work), nullptr);
  }
  JobStatus Wait(const std::string& name) {
    JobStatus end;
    Await([&] {
      end = *queue_->Get(name);
      return IsFinal(end.state);
    });
    return end;
  }
  JobStatus WaitDone(const absl::StatusOr<JobStatus>& job) {
    EXPECT_THAT(job, octavo::testing::IsOk());
    if (!job.ok()) return {};
    JobStatus end = Wait(job->name);
    EXPECT_EQ(end.state, JobState::kDone) << end.reason;
    return end;
  }

  const SystemClock clock_;
  Ledger ledger_{{int64_t{1} << 30}};
  VolumeStore store_{&ledger_, &clock_};
  Publisher publisher_{&clock_};
  std::shared_ptr<FramePool> frames_;
  octavo::testing::News news_;
  octavo::testing::NewsOfJobs observer_{&news_};
  std::unique_ptr<JobQueue> queue_;
};

}  // namespace octavo::engine::testing
