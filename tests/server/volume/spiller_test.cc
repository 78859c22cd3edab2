// Unexpected errors during a move between tiers, and how long failures are remembered.

#include "server/volume/spiller.h"

#include <future>
#include <new>
#include <stop_token>
#include <utility>

#include "absl/strings/str_format.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
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

class SpillerTest : public ::testing::Test {
 protected:
  SpillerTest() {
    folder_ = storage::SpillFolder::Open(temp_ / "spill", 1 << 20, &found_, &report_).value();
    device_ = std::move(OpenDevices("host").value().devices[0]);
    frames_ = std::make_shared<FramePool>(device_.get(), 16 << 20);
    spiller_ = std::make_unique<Spiller>(
        Spiller::Context{.volumes = &volumes_,
                         .ledger = &ledger_,
                         .clock = &clock_,
                         .devices = DeviceSet({{device_.get(), frames_}}),
                         .folder = folder_.get(),
                         .host_bytes = 1,
                         .meta_of = [this](const VolumeStatus& v) { return Meta(v); }},
        1);
  }
  ~SpillerTest() override { ArmFailpoint(""); }
  storage::VolumeMeta Meta(const VolumeStatus& volume) {
    if (fail_) throw std::bad_alloc();
    if (on_meta_) on_meta_();
    return {.volume_name = volume.name,
            .scan_name = volume.scan,
            .shape = {16, 16, 16},
            .dtype = volume.dtype,
            .digest = volume.digest};
  }
  void Hold(const std::string& name, const std::string& scan) {
    auto slot = std::make_shared<VolumeSlot>();
    slot->volume = device_->Allocate(4096).value();
    slot->charge =
        ledger_
            .Reserve(0, scan, "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    VolumeStatus status;
    status.name = name;
    status.scan = scan;
    status.dtype = DType::kU8;
    status.shape[0] = status.shape[1] = status.shape[2] = 16;
    status.bytes = 4096;
    status.digest = absl::StrFormat("sum64:%016x", DigestBytes(slot->volume.data(), 4096, 0));
    volumes_.Add(status, slot, 0);
    volumes_.Seal(status, /*kept=*/true);
  }
  absl::StatusOr<VolumeStatus> Spill(const std::string& name, Tier tier, WorkControl control = {}) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    OCTAVO_RETURN_IF_ERROR(spiller_->Spill(
        name, tier, std::move(control),
        [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); }));
    return promise.get_future().get();
  }
  absl::StatusOr<VolumeStatus> Restore(const std::string& name, WorkControl control = {}) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    OCTAVO_RETURN_IF_ERROR(spiller_->Restore(
        name, std::move(control),
        [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); }));
    return promise.get_future().get();
  }

  TempFolder temp_;
  FakeClock clock_;
  Ledger ledger_{{1 << 20}};
  VolumeStore volumes_{&ledger_, &clock_};
  std::vector<storage::SpillFolder::Found> found_;
  std::vector<std::string> report_;
  std::unique_ptr<storage::SpillFolder> folder_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<FramePool> frames_;
  std::atomic<bool> fail_{false};
  std::function<void()> on_meta_;
  std::unique_ptr<Spiller> spiller_;  // last: its threads use the rest
};

TEST_F(SpillerTest, AnExceptionLeavesTheVolumeWhereItIs) {
  Hold("volumes/a", "scans/a");
  fail_ = true;
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  EXPECT_EQ(volumes_.Get("volumes/a")->tier, Tier::kDevice);
  fail_ = false;
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  EXPECT_EQ(volumes_.Get("volumes/a")->tier, Tier::kDisk);
}

TEST_F(SpillerTest, AMoveThatNoThreadTakesOverLeavesTheVolumeWhereItIs) {
  Hold("volumes/a", "scans/a");
  const auto expect_as_before = [this] {
    const auto now = volumes_.Get("volumes/a");
    EXPECT_EQ(now->tier, Tier::kDevice);
    EXPECT_EQ(now->moving, Move::kNone);
  };
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  expect_as_before();
  EXPECT_NE(volumes_.Get("volumes/a")->last_error.find("no host memory left"), std::string::npos);
  ArmFailpoint("task_posted:throw=bad_alloc");
  absl::Status relocated;
  spiller_->Relocate("volumes/a", [&](const absl::Status& status) { relocated = status; });
  EXPECT_THAT(relocated, IsError(absl::StatusCode::kResourceExhausted, "no host memory left"));
  expect_as_before();
  ArmFailpoint("task_posted:throw=bad_alloc");
  EXPECT_FALSE(spiller_->Request("scans/a", Tier::kDisk));
  EXPECT_FALSE(spiller_->PendingOf("scans/a"));
  expect_as_before();
  EXPECT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
}

TEST_F(SpillerTest, ItsEndEndsTheMovesThatAreQueued) {
  Hold("volumes/a", "scans/a");
  Hold("volumes/b", "scans/b");
  std::promise<void> begun, go_on;
  on_meta_ = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    begun.set_value();
    go_on.get_future().wait();
  };
  std::vector<absl::Status> ends;
  const auto done = [&](const absl::StatusOr<VolumeStatus>& end) { ends.push_back(end.status()); };
  ASSERT_THAT(spiller_->Spill("volumes/a", Tier::kDisk, {}, done), IsOk());
  begun.get_future().wait();
  // The tier is too small for it.
  ASSERT_THAT(spiller_->Spill("volumes/b", Tier::kHost, {}, done), IsOk());
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_EQ(volumes_.Get(name)->moving, Move::kSpilling);
  go_on.set_value();
  spiller_ = nullptr;
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_THAT(ends[0], IsOk());
  EXPECT_THAT(ends[1], IsError(absl::StatusCode::kResourceExhausted, "HOST"));
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_EQ(volumes_.Get(name)->moving, Move::kNone);
  EXPECT_EQ(volumes_.Get("volumes/a")->tier, Tier::kDisk);
  EXPECT_EQ(volumes_.Get("volumes/b")->tier, Tier::kDevice);
}

// A move that a client cancels is no failure of the spiller.
TEST_F(SpillerTest, AStopAtEachStageLeavesTheVolumeWhereItIs) {
  Hold("volumes/a", "scans/a");
  std::stop_source stop;
  size_t reports = 0, stop_at = 0;
  const auto control = [&] {
    stop = std::stop_source();
    reports = 0;
    return WorkControl{.stop = stop.get_token(), .report = [&](const WorkProgress& progress) {
                         EXPECT_EQ(progress.stage, WorkStage::kCopying);
                         EXPECT_EQ(progress.total_bytes, 4096);
                         if (++reports == stop_at) stop.request_stop();
                       }};
  };
  for (const bool out : {true, false}) {
    const Tier from = out ? Tier::kDevice : Tier::kDisk, to = out ? Tier::kDisk : Tier::kDevice;
    stop_at = 1;
    const auto cancelled =
        out ? Spill("volumes/a", Tier::kDisk, control()) : Restore("volumes/a", control());
    EXPECT_THAT(cancelled, IsError(absl::StatusCode::kCancelled, "cancelled"));
    EXPECT_EQ(InfoOf(cancelled.status()).reason, Reason::kCancelled);
    EXPECT_EQ(reports, 1u);
    auto now = volumes_.Get("volumes/a");
    EXPECT_EQ(now->tier, from);
    EXPECT_EQ(now->moving, Move::kNone);
    EXPECT_EQ(spiller_->FailuresOf("scans/a"), 0);
    EXPECT_EQ(folder_->used_bytes() > 0, !out);
    stop_at = 0;
    EXPECT_THAT(out ? Spill("volumes/a", Tier::kDisk, control()) : Restore("volumes/a", control()),
                IsOk());
    EXPECT_GE(reports, 2u) << "before the first piece, and behind it";
    EXPECT_EQ(volumes_.Get("volumes/a")->tier, to);
  }
}

TEST_F(SpillerTest, WhatIsKnownAtOnceIsReturned) {
  Hold("volumes/a", "scans/a");
  EXPECT_EQ(InfoOf(Spill("volumes/none", Tier::kDisk).status()).reason, Reason::kNoVolume);
  EXPECT_EQ(InfoOf(Restore("volumes/none").status()).reason, Reason::kNoVolume);
  EXPECT_THAT(Restore("volumes/a"), IsOk()) << "it is there";
  ASSERT_OK_AND_ASSIGN(const VolumeMove move, volumes_.tiers().BeginSpill("volumes/a"));
  EXPECT_EQ(InfoOf(Restore("volumes/a").status()).reason, Reason::kMoving);
  EXPECT_EQ(InfoOf(Spill("volumes/a", Tier::kDisk).status()).reason, Reason::kMoving);
}

TEST_F(SpillerTest, WhatIsDiscardedWhileItMovesIsNotSaidToHaveMoved) {
  Hold("volumes/a", "scans/a");
  on_meta_ = [this] {
    EXPECT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, "somebody else's"), IsOk());
  };
  const auto moved = Spill("volumes/a", Tier::kDisk);
  EXPECT_THAT(moved,
              IsError(absl::StatusCode::kNotFound, "has left memory: DISCARDED, somebody else's"));
  EXPECT_EQ(InfoOf(moved.status()).reason, Reason::kVolumeGone);
  EXPECT_EQ(folder_->used_bytes(), 0);
}

TEST_F(SpillerTest, FailuresAreKnownOfScansThatAreForgottenOneDay) {
  Hold("volumes/a", "scans/a");
  Hold("volumes/b", "jobs/b");
  for (const char* name : {"volumes/a", "volumes/b"})
    EXPECT_THAT(Spill(name, Tier::kHost), IsError(absl::StatusCode::kResourceExhausted, "HOST"));
  EXPECT_EQ(spiller_->FailuresOf("scans/a"), 1);
  EXPECT_EQ(spiller_->FailuresOf("jobs/b"), 0);
  spiller_->ForgetScan("scans/a");
  EXPECT_EQ(spiller_->FailuresOf("scans/a"), 0);
}

}  // namespace
}  // namespace octavo::engine
