// Repeated commit requests, and unexpected errors during a commit.

#include "server/volume/committer.h"

#include <future>
#include <new>
#include <utility>

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
#include "server/storage/commit/commit_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/volume_callback.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;
using Outcome = absl::StatusOr<storage::CommitOutcome>;

class CommitterTest : public ::testing::Test {
 protected:
  CommitterTest() {
    volumes_.AddObserver(&observer_);
    storage_ = storage::CommitStore::Open(temp_ / "state", {temp_ / "data"}, nullptr).value();
    device_ = std::move(OpenDevices("host").value().devices[0]);
    frames_ = std::make_shared<FramePool>(device_.get(), 16 << 20);
    committer_ = std::make_unique<Committer>(
        Committer::Context{.storage = storage_.get(),
                           .volumes = &volumes_,
                           .clock = &clock_,
                           .devices = DeviceSet({{device_.get(), frames_}}),
                           .meta_of = [this](const VolumeStatus& v) { return Meta(v); }},
        1);
  }
  ~CommitterTest() override { ArmFailpoint(""); }
  storage::VolumeMeta Meta(const VolumeStatus& volume) {
    if (volume.state == VolumeState::kCommitting && fail_) throw std::bad_alloc();
    if (volume.state == VolumeState::kCommitting && on_write_) on_write_();
    return {.volume_name = volume.name,
            .scan_name = volume.scan,
            .shape = {volume.shape[0], volume.shape[1], volume.shape[2]},
            .dtype = volume.dtype,
            .digest = volume.digest};
  }
  void Hold(const std::string& name) {
    auto slot = std::make_shared<VolumeSlot>();
    slot->volume = device_->Allocate(4096).value();
    slot->charge = ledger_.Reserve(0, "scans/a", "", {{"volume", 10, 1}}, nullptr).value()[0];
    VolumeStatus status;
    status.name = name;
    status.scan = "scans/a";
    status.dtype = DType::kU8;
    status.shape[0] = status.shape[1] = status.shape[2] = 16;
    status.bytes = 4096;
    volumes_.Add(status, slot, 0);
    volumes_.Seal(status, /*kept=*/true);
  }
  /// Requests a commit. The future gets its answer.
  std::future<Outcome> Ask(const std::string& name, const std::string& destination,
                           const std::string& request_id) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    CommitCallbacks callbacks;
    callbacks.on_done = [promise](Outcome outcome) { promise->set_value(std::move(outcome)); };
    CommitOptions options{.destination = destination};
    options.writer.format = storage::Format::kNpy;
    const auto begun = committer_->Commit(name, options, request_id, std::move(callbacks));
    if (!begun.ok()) promise->set_value(begun.status());
    return promise->get_future();
  }

  TempFolder temp_;
  FakeClock clock_;
  Ledger ledger_{{1000}};
  std::function<void(const VolumeStatus&)> on_change_ = [](const VolumeStatus&) {};
  octavo::testing::VolumeCallback observer_{[this](const VolumeStatus& v) { on_change_(v); }};
  VolumeStore volumes_{&ledger_, &clock_};
  std::unique_ptr<storage::CommitStore> storage_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<FramePool> frames_;
  std::atomic<bool> fail_{false};
  std::function<void()> on_write_;
  std::unique_ptr<Committer> committer_;  // last: its threads use the rest
};

TEST_F(CommitterTest, ARetryIsAnsweredWheneverItComes) {
  Hold("volumes/a");
  std::future<Outcome> early, late;
  on_change_ = [&](const VolumeStatus& volume) {
    if (volume.state == VolumeState::kCommitting)
      early = Ask("volumes/a", "a", "once");  // this commit has just begun
    if (volume.state == VolumeState::kCommitted)
      late = Ask("volumes/a", "a", "once");  // this commit has just ended
  };
  const auto outcome = Ask("volumes/a", "a", "once").get();
  ASSERT_THAT(outcome, IsOk());
  for (auto* retry : {&early, &late}) {
    const auto again = retry->get();
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->path, outcome->path);
  }
  EXPECT_THAT(Ask("volumes/a", "a", "once").get(), IsOk());
  EXPECT_THAT(Ask("volumes/a", "a", "twice").get(),
              IsError(absl::StatusCode::kFailedPrecondition, "COMMITTED"));
}

TEST_F(CommitterTest, AnIdIsForOneVolumeAlsoWhileItIsCommitted) {
  Hold("volumes/a");
  Hold("volumes/b");
  std::future<Outcome> other;
  on_change_ = [&](const VolumeStatus& volume) {
    if (volume.state == VolumeState::kCommitting && volume.name == "volumes/a")
      other = Ask("volumes/b", "b", "once");
  };
  EXPECT_THAT(Ask("volumes/a", "a", "once").get(), IsOk());
  const auto refused = other.get();
  EXPECT_THAT(refused, IsError(absl::StatusCode::kAlreadyExists, "volumes/a"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kIdempotencyMismatch);
  EXPECT_EQ(volumes_.Get("volumes/b")->state, VolumeState::kHeld);
}

TEST_F(CommitterTest, AnExceptionLeavesTheVolumeHeld) {
  Hold("volumes/a");
  fail_ = true;
  EXPECT_THAT(Ask("volumes/a", "a", "").get(),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kHeld);
  fail_ = false;
  EXPECT_THAT(Ask("volumes/a", "a", "").get(), IsOk());
}

// The files are published, but the volume's end finds no memory: the volume stays held, the client
// hears of it, and the job ends.
TEST_F(CommitterTest, AnEndWithoutMemoryEndsTheJob) {
  Hold("volumes/a");
  ArmFailpoint("commit_finished:throw=bad_alloc");
  EXPECT_THAT(Ask("volumes/a", "a", "once").get(),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kHeld);
  EXPECT_EQ(volumes_.CountOf("scans/a").commit_failures, 1);
  EXPECT_FALSE(committer_->PendingOf("scans/a"));
  Stats stats;
  committer_->AddTo(&stats);
  EXPECT_EQ(stats.commit_errors["OUT_OF_MEMORY"], 1);
  EXPECT_EQ(stats.commit_seconds.count, 0);
  EXPECT_THAT(Ask("volumes/a", "b", "once").get(), IsOk());
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kCommitted);
}

TEST_F(CommitterTest, ACommitThatNoThreadTakesOverLeavesTheVolumeHeld) {
  Hold("volumes/a");
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_THAT(Ask("volumes/a", "a", "once").get(),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  const auto now = volumes_.Get("volumes/a");
  EXPECT_EQ(now->state, VolumeState::kHeld);
  EXPECT_NE(now->last_error.find("no host memory left"), std::string::npos);
  EXPECT_EQ(volumes_.CountOf("scans/a").commit_failures, 1);
  EXPECT_FALSE(committer_->PendingOf("scans/a"));
  EXPECT_THAT(Ask("volumes/a", "a", "once").get(), IsOk());
}

TEST_F(CommitterTest, ItsEndEndsTheCommitsThatAreQueued) {
  Hold("volumes/a");
  Hold("volumes/b");
  std::promise<void> begun, go_on;
  on_write_ = [&] {
    begun.set_value();
    go_on.get_future().wait();
  };
  auto first = Ask("volumes/a", "a", "");
  begun.get_future().wait();
  auto second = Ask("volumes/b", "b", "");
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_EQ(volumes_.Get(name)->state, VolumeState::kCommitting);
  committer_->CancelAll();  // as its end does, which waits for its threads
  go_on.set_value();
  committer_ = nullptr;
  for (auto* outcome : {&first, &second})
    EXPECT_THAT(outcome->get(), IsError(absl::StatusCode::kCancelled, "stays held"));
  for (const char* name : {"volumes/a", "volumes/b"}) {
    EXPECT_EQ(volumes_.Get(name)->state, VolumeState::kHeld);
    EXPECT_NE(volumes_.Get(name)->last_error.find("cancelled"), std::string::npos);
  }
}

}  // namespace
}  // namespace octavo::engine
