// Commits that are cancelled or refused, and unexpected errors during a commit.

#include "server/volume/committer.h"

#include <filesystem>
#include <future>
#include <new>
#include <set>
#include <stop_token>
#include <utility>

#include "gmock/gmock.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
#include "server/storage/commit/commit_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

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
    slot->charge =
        ledger_
            .Reserve(0, "scans/a", "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    VolumeStatus status;
    status.name = name;
    status.scan = "scans/a";
    status.dtype = DType::kU8;
    status.shape[0] = status.shape[1] = status.shape[2] = 16;
    status.bytes = 4096;
    volumes_.Add(status, slot, 0);
    volumes_.Seal(status, /*kept=*/true);
  }
  static CommitOptions To(const std::string& destination) {
    CommitOptions options{.destination = destination};
    options.writer.format = storage::Format::kNpy;
    return options;
  }
  /// Requests a commit. The future gets its answer.
  std::future<Outcome> Ask(const std::string& name, const std::string& destination,
                           WorkControl control = {}) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    const auto done = [promise](Outcome outcome) { promise->set_value(std::move(outcome)); };
    const auto begun = committer_->Commit(name, To(destination), std::move(control), done);
    if (!begun.ok()) promise->set_value(begun);
    return promise->get_future();
  }
  /// The files below the storage root, temporary ones too.
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::recursive_directory_iterator(temp_ / "data"))
      names.push_back(one.path().filename());
    return names;
  }

  TempFolder temp_;
  FakeClock clock_;
  Ledger ledger_{{1000}};
  VolumeStore volumes_{&ledger_, &clock_};
  std::unique_ptr<storage::CommitStore> storage_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<FramePool> frames_;
  std::atomic<bool> fail_{false};
  std::function<void()> on_write_;
  std::unique_ptr<Committer> committer_;  // last: its threads use the rest
};

// Whenever the stop is requested before the files are made durable, the volume stays held and
// nothing is on disk; afterwards it is too late.
TEST_F(CommitterTest, AStopAtEachStageLeavesTheVolumeHeldAndNothingOnDisk) {
  Hold("volumes/a");
  std::vector<WorkProgress> reports;
  for (size_t stop_at = 0;; ++stop_at) {
    SCOPED_TRACE(stop_at);
    std::stop_source stop;
    reports.clear();
    const auto outcome = Ask("volumes/a", "a",
                             {.stop = stop.get_token(),
                              .report =
                                  [&](const WorkProgress& progress) {
                                    reports.push_back(progress);
                                    if (reports.size() == stop_at + 1) stop.request_stop();
                                  }})
                             .get();
    if (outcome.ok()) break;
    EXPECT_THAT(outcome, IsError(absl::StatusCode::kCancelled, "stays held"));
    EXPECT_EQ(InfoOf(outcome.status()).reason, Reason::kCommitCancelled);
    EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kHeld);
    EXPECT_THAT(Files(), ::testing::IsEmpty());
    EXPECT_EQ(reports.size(), stop_at + 1) << "nothing is done after the stop";
    ASSERT_LT(stop_at, 100u) << "a stop never comes too late";
  }
  // The last stop came when the files were made durable.
  std::set<WorkStage> stages;
  for (const WorkProgress& report : reports) stages.insert(report.stage);
  EXPECT_THAT(stages, ::testing::ElementsAre(WorkStage::kPreparing, WorkStage::kWriting,
                                             WorkStage::kSyncing));
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kCommitted);
  EXPECT_EQ(reports.back().done_bytes, 4096);
  EXPECT_EQ(reports.back().total_bytes, 4096);
  EXPECT_GT(reports.back().disk_bytes, 4096);
  EXPECT_LT(reports.front().fraction, reports.back().fraction);
}

TEST_F(CommitterTest, AStopBeforeAThreadTakesItLeavesTheVolumeHeld) {
  Hold("volumes/a");
  Hold("volumes/b");
  std::promise<void> begun, go_on;
  on_write_ = [&, waits = true]() mutable {
    if (!std::exchange(waits, false)) return;
    begun.set_value();
    go_on.get_future().wait();
  };
  auto first = Ask("volumes/a", "a");
  begun.get_future().wait();
  std::stop_source stop;
  auto second = Ask("volumes/b", "b", {.stop = stop.get_token(), .report = nullptr});
  stop.request_stop();
  go_on.set_value();
  EXPECT_THAT(first.get(), IsOk());
  EXPECT_THAT(second.get(), IsError(absl::StatusCode::kCancelled, "stays held"));
  EXPECT_EQ(volumes_.Get("volumes/b")->state, VolumeState::kHeld);
}

TEST_F(CommitterTest, WhatIsAtTheDestinationRefusesBeforeTheCommit) {
  Hold("volumes/a");
  Hold("volumes/b");
  EXPECT_THAT(committer_->Check(To("a"), "volumes/a"), IsOk());
  EXPECT_THAT(Ask("volumes/a", "a").get(), IsOk());
  const absl::Status taken = committer_->Check(To("a"), "volumes/b");
  EXPECT_EQ(InfoOf(taken).reason, Reason::kDestinationExists) << taken;
  EXPECT_EQ(InfoOf(committer_->Check(To("a"))).reason, Reason::kDestinationExists);
  EXPECT_THAT(committer_->Check(To("a{index}")), IsOk()) << "its name is not known yet";
  EXPECT_THAT(committer_->Check(To("b"), "volumes/a"),
              IsError(absl::StatusCode::kFailedPrecondition,
                      absl::StrCat("is COMMITTED (", volumes_.Get("volumes/a")->commit.path, ")")));
  model::Stats stats;
  committer_->AddTo(&stats);
  EXPECT_EQ(stats.commit_errors["DESTINATION_EXISTS"], 1) << "of a volume";
  EXPECT_EQ(volumes_.Get("volumes/b")->last_error, "");
}

TEST_F(CommitterTest, AnExceptionLeavesTheVolumeHeld) {
  Hold("volumes/a");
  fail_ = true;
  EXPECT_THAT(Ask("volumes/a", "a").get(),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kHeld);
  fail_ = false;
  EXPECT_THAT(Ask("volumes/a", "a").get(), IsOk());
}

// The files are published, but the volume's end finds no memory: the volume stays held, the client
// hears of it, and the job ends.
TEST_F(CommitterTest, AnEndWithoutMemoryEndsTheJob) {
  Hold("volumes/a");
  ArmFailpoint("commit_finished:throw=bad_alloc");
  EXPECT_THAT(Ask("volumes/a", "a").get(),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kHeld);
  EXPECT_EQ(volumes_.CountOf("scans/a").commit_failures, 1);
  EXPECT_FALSE(committer_->PendingOf("scans/a"));
  Stats stats;
  committer_->AddTo(&stats);
  EXPECT_EQ(stats.commit_errors["OUT_OF_MEMORY"], 1);
  EXPECT_EQ(stats.commit_seconds.count, 0);
  EXPECT_THAT(Ask("volumes/a", "b").get(), IsOk());
  EXPECT_EQ(volumes_.Get("volumes/a")->state, VolumeState::kCommitted);
}

TEST_F(CommitterTest, ACommitThatNoThreadTakesOverLeavesTheVolumeHeld) {
  Hold("volumes/a");
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_THAT(Ask("volumes/a", "a").get(),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  const auto now = volumes_.Get("volumes/a");
  EXPECT_EQ(now->state, VolumeState::kHeld);
  EXPECT_NE(now->last_error.find("no host memory left"), std::string::npos);
  EXPECT_EQ(volumes_.CountOf("scans/a").commit_failures, 1);
  EXPECT_FALSE(committer_->PendingOf("scans/a"));
  EXPECT_THAT(Ask("volumes/a", "a").get(), IsOk());
}

TEST_F(CommitterTest, ItsEndEndsTheCommitsThatAreQueued) {
  Hold("volumes/a");
  Hold("volumes/b");
  std::promise<void> begun, go_on;
  on_write_ = [&] {
    begun.set_value();
    go_on.get_future().wait();
  };
  auto first = Ask("volumes/a", "a");
  begun.get_future().wait();
  auto second = Ask("volumes/b", "b");
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
