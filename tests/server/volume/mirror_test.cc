// Copies of held volumes in the tier DISK: what they save, and that none outlives its volume.

#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "server/volume/mirrorer.h"
#include "server/volume/volume_tiers.h"
#include "tests/server/volume/spiller_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class MirrorTest : public SpillerFixture {
 protected:
  explicit MirrorTest(int64_t disk_bytes = 1 << 20) : SpillerFixture(disk_bytes, 1 << 20) {
    volumes_.AddObserver(&details_);
  }
  const VolumeTiers::MirrorWish any_{.most_bytes = 1 << 20};
  const std::string copy_ = temp_ / "copy";
  /// Mirrors the oldest volume that may be. `at_piece` is called before each piece.
  absl::Status Mirror(const std::function<void()>& at_piece = nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(VolumeMirroring begun, volumes_.tiers().BeginMirror(any_));
    return spiller_->Mirror(std::move(begun), [&](const std::function<bool()>& stopped) {
      if (at_piece) at_piece();
      return !stopped();
    });
  }
  /// What a process that starts now would hold again. It has the folder for itself: here, a copy.
  std::vector<storage::SpillFolder::Found> Found() {
    namespace fs = std::filesystem;
    std::vector<storage::SpillFolder::Found> found;
    std::vector<std::string> report;
    fs::remove_all(copy_);
    fs::copy(temp_ / "spill", copy_, fs::copy_options::recursive);
    fs::permissions(copy_, fs::perms::owner_all);
    EXPECT_THAT(storage::SpillFolder::Open(copy_, 1 << 20, &found, &report), IsOk());
    EXPECT_TRUE(report.empty()) << report[0];
    return found;
  }
  void ExpectNothingIsLeft() {
    EXPECT_TRUE(Found().empty());
    EXPECT_EQ(folder_->used_bytes(), 0);
    EXPECT_EQ(Failures(), 0);
  }
  int64_t Failures() {
    model::Stats stats;
    spiller_->AddTo(&stats);
    return stats.mirror_failures;
  }
  model::TierUse Disk() { return spiller_->Uses()[1]; }
  VolumeStatus Get(const std::string& name) { return volumes_.Get(name).value(); }

  class Details final : public VolumeObserver {
   public:
    void OnVolumeChanged(const VolumeStatus&) override {}
    void OnVolumeDetails(const VolumeStatus& volume) override {
      mirrored_.push_back(volume.mirrored);
      names_.push_back(volume.name);
    }
    std::vector<bool> mirrored_;
    std::vector<std::string> names_;
  };
  Details details_;
};

TEST_F(MirrorTest, TheBytesStayAndALaterProcessFindsTheCopy) {
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Mirror(), IsOk());
  const VolumeStatus now = Get("volumes/a");
  EXPECT_EQ(now.tier, Tier::kDevice);
  EXPECT_EQ(now.moving, Move::kNone);
  EXPECT_TRUE(now.mirrored);
  EXPECT_EQ(details_.mirrored_, std::vector<bool>{true});
  EXPECT_EQ(Disk().mirrors, 1);
  EXPECT_EQ(Disk().mirror_bytes, kVolumeBytes);
  EXPECT_EQ(Disk().unmirrored, 0);
  Hold("volumes/b", "scans/a");
  Hold("volumes/ring", "scans/a", /*kept=*/false);  // something overwrites it
  EXPECT_EQ(Disk().unmirrored, 1);
  EXPECT_EQ(Disk().unmirrored_bytes, kVolumeBytes);
  ASSERT_THAT(Spill("volumes/b", Tier::kDisk), IsOk());
  EXPECT_EQ(Disk().unmirrored, 0);
  ASSERT_THAT(volumes_.Discard("volumes/b", Reason::kDiscarded, ""), IsOk());
  EXPECT_EQ(Disk().volumes, 0);
  EXPECT_GT(Disk().used_bytes, kVolumeBytes);
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kNotFound, "")) << "it has one";
  VolumeStore next(&ledger_, &clock_);
  Spiller again({.volumes = &next,
                 .ledger = &ledger_,
                 .clock = &clock_,
                 .devices = DeviceSet({{device_.get(), frames_}}),
                 .folder = folder_.get(),
                 .host_bytes = 0,
                 .meta_of = nullptr},
                1);
  EXPECT_EQ(again.Recover(Found()).size(), 1u);
  ASSERT_OK_AND_ASSIGN(const VolumeStatus found, next.Get("volumes/a"));
  EXPECT_EQ(found.digest, now.digest);
  EXPECT_EQ(found.tier, Tier::kDisk);
  EXPECT_TRUE(found.recovered);
}

TEST_F(MirrorTest, ASpillToDiskTakesItAndCopiesNothing) {
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Mirror(), IsOk());
  const int64_t used = folder_->used_bytes();
  ArmFailpoint("spill_create:errno=5");
  ASSERT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  EXPECT_TRUE(FailpointArmed()) << "no file was made";
  ArmFailpoint("");
  const VolumeStatus now = Get("volumes/a");
  EXPECT_EQ(now.tier, Tier::kDisk);
  EXPECT_FALSE(now.mirrored);
  EXPECT_EQ(folder_->used_bytes(), used);
  EXPECT_EQ(Disk().spilled_bytes, 0);
  EXPECT_EQ(Disk().mirrors, 0);
  EXPECT_THAT(Restore("volumes/a"), IsOk()) << "which compares the digest";
  ExpectNothingIsLeft();
}

TEST_F(MirrorTest, WhatGoesToHostMemoryKeepsIt) {
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Mirror(), IsOk());
  ASSERT_THAT(Spill("volumes/a", Tier::kHost), IsOk());
  EXPECT_TRUE(Get("volumes/a").mirrored);
  ASSERT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  EXPECT_FALSE(Get("volumes/a").mirrored);
  EXPECT_EQ(Found().size(), 1u);
  ASSERT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  ExpectNothingIsLeft();
}

TEST_F(MirrorTest, ARestoredVolumeKeepsItsFileWhereVolumesAreMirrored) {
  volumes_.SetMirrors(true);
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  ASSERT_THAT(Restore("volumes/a"), IsOk());
  EXPECT_EQ(Get("volumes/a").tier, Tier::kDevice);
  EXPECT_TRUE(Get("volumes/a").mirrored);
  EXPECT_EQ(Found().size(), 1u);
  const int64_t spilled = Disk().spilled_bytes;
  ASSERT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  EXPECT_EQ(Disk().spilled_bytes, spilled);
  ASSERT_THAT(Restore("volumes/a"), IsOk());
  ASSERT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  ExpectNothingIsLeft();
}

TEST_F(MirrorTest, AVolumeThatLeavesTakesItsMirrorWithItBeforeTheVerbAnswers) {
  for (const char* how : {"discard", "commit"}) {
    const std::string name = std::string("volumes/") + how;
    Hold(name, "scans/a");
    ASSERT_THAT(Mirror(), IsOk());
    if (how == std::string("discard")) {
      ASSERT_THAT(volumes_.Discard(name, Reason::kDiscarded, ""), IsOk());
    } else {
      ASSERT_OK_AND_ASSIGN(VolumeCommit commit, volumes_.BeginCommit(name));
      EXPECT_EQ(Found().size(), 1u) << "it may fail";
      std::move(commit).Finish(storage::CommitOutcome{});
    }
    EXPECT_FALSE(Get(name).mirrored);
    ExpectNothingIsLeft();
  }
}

TEST_F(MirrorTest, NoFileIsLeftOfAVolumeThatLeavesWhileItIsMirrored) {
  for (const bool at_the_end : {false, true}) {
    const std::string name = at_the_end ? "volumes/b" : "volumes/a";
    Hold(name, "scans/a");
    int pieces = 0;
    const absl::Status mirrored = Mirror([&] {
      if (pieces++ == (at_the_end ? 1 : 0))
        EXPECT_THAT(volumes_.Discard(name, Reason::kDiscarded, ""), IsOk());
    });
    EXPECT_THAT(mirrored, IsError(absl::StatusCode::kCancelled, ""));
    ExpectNothingIsLeft();
  }
}

TEST_F(MirrorTest, ACommitThatFailsMeanwhileIsNoMatter) {
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Mirror([&, first = true]() mutable {
                if (!std::exchange(first, false)) return;
                auto commit = volumes_.BeginCommit("volumes/a");
                ASSERT_THAT(commit, IsOk());
                std::move(*commit).Finish(absl::UnavailableError("no disk"));
              }),
              IsOk());
  EXPECT_TRUE(Get("volumes/a").mirrored);
  EXPECT_EQ(Get("volumes/a").last_error, "no disk");
}

TEST_F(MirrorTest, ASpillTakesThePlaceOfAMirroringThatIsUnderWay) {
  for (const Tier tier : {Tier::kDisk, Tier::kHost}) {
    const std::string name = std::string("volumes/") + Name(tier);
    Hold(name, "scans/a");
    std::promise<absl::StatusOr<VolumeStatus>> spilled;
    const absl::Status mirrored = Mirror([&, first = true]() mutable {
      if (!std::exchange(first, false)) return;
      EXPECT_THAT(spiller_->Spill(name, tier, {},
                                  [&](absl::StatusOr<VolumeStatus> volume) {
                                    spilled.set_value(std::move(volume));
                                  }),
                  IsOk());
    });
    EXPECT_THAT(mirrored, IsError(absl::StatusCode::kCancelled, ""));
    ASSERT_OK_AND_ASSIGN(const VolumeStatus now, spilled.get_future().get());
    EXPECT_EQ(now.tier, tier);
    EXPECT_FALSE(now.mirrored);
    EXPECT_EQ(Failures(), 0);
    ASSERT_THAT(volumes_.Discard(name, Reason::kDiscarded, ""), IsOk());
    ExpectNothingIsLeft();
  }
}

TEST_F(MirrorTest, ADrainGivesUpTheCopyAndBeginsNone) {
  Hold("volumes/a", "scans/a");
  EXPECT_THAT(Mirror([this] { spiller_->BeginDrain(); }),
              IsError(absl::StatusCode::kCancelled, ""));
  EXPECT_EQ(spiller_->FreeForMirrors(), 0);
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kCancelled, ""));
  ExpectNothingIsLeft();
}

TEST_F(MirrorTest, ACopyThatFailsIsNoMatterOfTheVolume) {
  Hold("volumes/a", "scans/a");
  for (const char* point : {"spill_create:errno=28", "spill_write:errno=28", "spill_footer:errno=5",
                            "spill_synced:errno=5"}) {
    const int64_t failures = Failures();
    ArmFailpoint(point);
    EXPECT_FALSE(Mirror().ok()) << point;
    EXPECT_EQ(Failures(), failures + 1) << point;
    EXPECT_EQ(Get("volumes/a").last_error, "");
    EXPECT_FALSE(Get("volumes/a").mirrored);
    EXPECT_EQ(folder_->used_bytes(), 0) << point;
    EXPECT_TRUE(Found().empty()) << point;
  }
  EXPECT_EQ(Disk().failures, 0) << "those are of spills";
  EXPECT_THAT(Mirror(), IsOk());
}

TEST_F(MirrorTest, BytesThatAProcessHasChangedAreMirroredByNobody) {
  Hold("volumes/a", "scans/a");
  {
    ASSERT_OK_AND_ASSIGN(const VolumeHold hold, volumes_.Hold("volumes/a", HoldKind::kDevice));
    ++*static_cast<char*>(const_cast<void*>(static_cast<const void*>(hold.slot->volume.data())));
  }
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kDataLoss, "changed since it was sealed"));
  EXPECT_EQ(Get("volumes/a").last_error, "");
  EXPECT_TRUE(Found().empty());
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kNotFound, "")) << "no copy of it is right";
}

TEST_F(MirrorTest, OnlyWhatNothingOverwritesIsMirrored) {
  Hold("volumes/a", "scans/a", /*kept=*/false);
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kNotFound, ""));
  ASSERT_THAT(volumes_.ring().Mark("volumes/a", 1), IsOk());
  ASSERT_THAT(Mirror(), IsOk());
  EXPECT_EQ(Found().size(), 1u);
  ASSERT_THAT(volumes_.ring().Unmark("volumes/a", nullptr, /*endangers=*/true), IsOk());
  EXPECT_FALSE(Get("volumes/a").mirrored);
  ExpectNothingIsLeft();  // the ring, which waits for no disk, has nothing to remove
  // Lent, it is kept for as long as a process has it.
  ASSERT_OK_AND_ASSIGN(const VolumeHold loan, volumes_.Hold("volumes/a", HoldKind::kLoan, 1));
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kNotFound, ""));
}

TEST_F(MirrorTest, AVolumeThatReturnsToTheRingMeanwhileGetsNone) {
  Hold("volumes/a", "scans/a", /*kept=*/false);
  ASSERT_THAT(volumes_.ring().Mark("volumes/a", 1), IsOk());
  EXPECT_THAT(Mirror([&, first = true]() mutable {
                if (!std::exchange(first, false)) return;
                EXPECT_THAT(volumes_.ring().Unmark("volumes/a", nullptr, true), IsOk());
              }),
              IsError(absl::StatusCode::kCancelled, ""));
  ExpectNothingIsLeft();
}

TEST_F(MirrorTest, TheFileSaysWhetherTheVolumeIsMarkedNow) {
  Hold("volumes/a", "scans/a");  // mirrored
  Hold("volumes/b", "scans/a");  // spilled
  ASSERT_THAT(Mirror(), IsOk());
  ASSERT_THAT(Spill("volumes/b", Tier::kDisk), IsOk());
  for (const auto note :
       {storage::SpillNote::kMarked, storage::SpillNote::kUnmarked, storage::SpillNote::kMarked}) {
    for (const char* name : {"volumes/a", "volumes/b"}) {
      if (note == storage::SpillNote::kMarked) {
        ASSERT_THAT(volumes_.ring().Mark(name, 9), IsOk());
      } else {
        ASSERT_THAT(volumes_.ring().Unmark(name, nullptr, false), IsOk());
      }
    }
    volumes_.tiers().NoteMarks();
    const auto found = Found();
    ASSERT_EQ(found.size(), 2u);
    for (const auto& one : found) EXPECT_EQ(one.note, note);
  }
  VolumeStore next(&ledger_, &clock_);
  Spiller again({.volumes = &next,
                 .ledger = &ledger_,
                 .clock = &clock_,
                 .devices = DeviceSet({{device_.get(), frames_}}),
                 .folder = folder_.get(),
                 .host_bytes = 0,
                 .meta_of = nullptr},
                1);
  (void)again.Recover(Found());
  for (const char* name : {"volumes/a", "volumes/b"}) EXPECT_TRUE(next.Get(name)->marked) << name;
  // Only what has changed is written.
  ArmFailpoint("spill_note:errno=5");
  volumes_.tiers().NoteMarks();
  EXPECT_TRUE(FailpointArmed());
}

TEST_F(MirrorTest, AMarkThatTheDiskDoesNotTakeIsWrittenAgain) {
  Hold("volumes/a", "scans/a");
  ASSERT_THAT(Mirror(), IsOk());
  ASSERT_THAT(volumes_.ring().Mark("volumes/a", 9), IsOk());
  for (int64_t turn = 1; turn <= 3; ++turn) {
    ArmFailpoint("spill_note:errno=5");
    volumes_.tiers().NoteMarks();
    EXPECT_FALSE(FailpointArmed()) << "turn " << turn << " asked the disk";
    EXPECT_EQ(Found()[0].note, storage::SpillNote::kNone);
    EXPECT_EQ(volumes_.tiers().mark_failures(), turn);
    volumes_.tiers().NoteMarks();  // too early
    EXPECT_EQ(Found()[0].note, storage::SpillNote::kNone);
    clock_.Advance(11);
  }
  volumes_.tiers().NoteMarks();
  EXPECT_EQ(Found()[0].note, storage::SpillNote::kMarked);
  EXPECT_EQ(volumes_.tiers().mark_failures(), 3);
  // The file of a volume that left between two turns is of no more concern.
  ASSERT_THAT(volumes_.ring().Unmark("volumes/a", nullptr, false), IsOk());
  ArmFailpoint("spill_note:errno=5");
  volumes_.tiers().NoteMarks();
  ASSERT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  volumes_.tiers().NoteMarks();
  EXPECT_EQ(volumes_.tiers().mark_failures(), 4);
  EXPECT_TRUE(Found().empty());
}

/// What a later process makes of the times of a volume.
class LaterTest : public MirrorTest {
 protected:
  /// `clock`: of that process.
  VolumeStatus Later(FakeClock& clock) {
    VolumeStore next(&ledger_, &clock);
    Spiller again({.volumes = &next,
                   .ledger = &ledger_,
                   .clock = &clock,
                   .devices = DeviceSet({{device_.get(), frames_}}),
                   .folder = folder_.get(),
                   .host_bytes = 0,
                   .meta_of = nullptr},
                  1);
    (void)again.Recover(Found());
    return next.Get("volumes/a").value();
  }
};

TEST_F(LaterTest, TheTimeToLiveGoesOn) {
  clock_.Advance(30);
  Hold("volumes/a", "scans/a", /*kept=*/true, /*ttl=*/100);
  clock_.Advance(10);
  ASSERT_THAT(Mirror(), IsOk());
  clock_.Advance(15);
  const VolumeStatus before = Get("volumes/a");
  const VolumeStatus later = Later(clock_);
  EXPECT_NEAR(later.expires_seconds, 90, 1e-3) << "what was left when its file was written";
  EXPECT_NEAR(later.held_seconds, 25, 1e-3);
  EXPECT_EQ(later.held_unix_ns, before.held_unix_ns);
  // The wall clock was set back to before the seal.
  FakeClock back;
  EXPECT_NEAR(Later(back).expires_seconds, 90, 1e-3);
  EXPECT_NEAR(Later(back).held_seconds, 0, 1e-3);
}

TEST_F(LaterTest, TheTimeWithoutAServerDoesNotCount) {
  Hold("volumes/a", "scans/a", /*kept=*/true, /*ttl=*/100);
  clock_.Advance(60);
  ASSERT_THAT(Spill("volumes/a", Tier::kDisk), IsOk());
  clock_.Advance(3 * 86400);  // a weekend
  EXPECT_NEAR(Later(clock_).expires_seconds, 40, 1e-3);
  VolumeStore next(&ledger_, &clock_);
  Spiller again({.volumes = &next,
                 .ledger = &ledger_,
                 .clock = &clock_,
                 .devices = DeviceSet({{device_.get(), frames_}}),
                 .folder = folder_.get(),
                 .host_bytes = 0,
                 .meta_of = nullptr},
                1);
  (void)again.Recover(Found());
  EXPECT_TRUE(next.expiry().Tick([](const std::string&) { return false; }).expired.empty());
  clock_.Advance(41);
  const auto due = next.expiry().Tick([](const std::string&) { return false; });
  ASSERT_EQ(due.expired.size(), 1u);
  EXPECT_EQ(due.expired[0].reason_code, Reason::kExpired);
  EXPECT_TRUE(std::filesystem::is_empty(copy_));
}

TEST_F(LaterTest, AMarkThatWasTakenBackLaterBeginsItAnew) {
  Hold("volumes/a", "scans/a", /*kept=*/true, /*ttl=*/100);
  ASSERT_THAT(Mirror(), IsOk());
  ASSERT_THAT(volumes_.ring().Mark("volumes/a", 9), IsOk());
  volumes_.tiers().NoteMarks();
  clock_.Advance(500);
  EXPECT_EQ(Later(clock_).expires_seconds, 0) << "marked";
  ASSERT_THAT(volumes_.ring().Unmark("volumes/a", nullptr, false), IsOk());
  volumes_.tiers().NoteMarks();
  EXPECT_NEAR(Later(clock_).expires_seconds, 100, 1e-3);
  EXPECT_NEAR(Later(clock_).held_seconds, 500, 1e-3);
}

/// A tier with room for three files.
class SmallTierTest : public MirrorTest {
 protected:
  // A file has its voxels, as many bytes again at most for its footer, and a description.
  SmallTierTest() : MirrorTest(33'500) {}
  void HoldMirrored(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      Hold(name, "scans/a");
      ASSERT_THAT(Mirror(), IsOk()) << name;
    }
  }
};

TEST_F(SmallTierTest, MirrorsGiveWayToASpillTheNewestFirst) {
  HoldMirrored({"volumes/a", "volumes/b", "volumes/c"});
  Hold("volumes/d", "scans/a");
  EXPECT_THAT(Mirror(), IsError(absl::StatusCode::kResourceExhausted, "spill.disk_bytes"));
  EXPECT_TRUE(Get("volumes/c").mirrored) << "a mirror drops none";
  details_.mirrored_.clear();
  ASSERT_THAT(Spill("volumes/d", Tier::kDisk), IsOk());
  EXPECT_TRUE(Get("volumes/a").mirrored);
  EXPECT_TRUE(Get("volumes/b").mirrored);
  EXPECT_FALSE(Get("volumes/c").mirrored);
  EXPECT_NE(std::find(details_.mirrored_.begin(), details_.mirrored_.end(), false),
            details_.mirrored_.end());
  EXPECT_EQ(Found().size(), 3u);
  EXPECT_EQ(Get("volumes/d").last_error, "");
}

TEST_F(SmallTierTest, RoomThatMirrorsTakeIsFree) {
  const int64_t empty = spiller_->FreeOf(Tier::kDisk);
  HoldMirrored({"volumes/a", "volumes/b"});
  EXPECT_EQ(spiller_->FreeOf(Tier::kDisk), empty) << "with their footers";
  spiller_->BeginDrain();
  EXPECT_LT(spiller_->FreeOf(Tier::kDisk), empty - 4 * kVolumeBytes);
}

TEST_F(SmallTierTest, AtTheEndEachMirrorKeepsItsVolume) {
  HoldMirrored({"volumes/a", "volumes/b", "volumes/c"});
  Hold("volumes/d", "scans/a");
  spiller_->BeginDrain();
  EXPECT_THAT(Spill("volumes/d", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "spill.disk_bytes"));
  EXPECT_EQ(Disk().mirrors, 3);
  ASSERT_THAT(Spill("volumes/b", Tier::kDisk), IsOk()) << "which needs no room";
}

TEST_F(SmallTierTest, WhereAllWouldNotDoWithTheFooterNoneIsDropped) {
  HoldMirrored({"volumes/a", "volumes/b", "volumes/c"});
  VolumeStatus large;
  large.name = "volumes/large";
  large.scan = "jobs/a";
  large.dtype = DType::kU8;
  large.bytes = spiller_->FreeOf(Tier::kDisk) - 100;
  EXPECT_THAT(spiller_->BeginStoring(large),
              IsError(absl::StatusCode::kResourceExhausted, "spill.disk_bytes"));
  EXPECT_EQ(Disk().mirrors, 3);
}

TEST_F(SmallTierTest, ADrainThatBeginsMeanwhileKeepsTheMirrorsThatAreLeft) {
  HoldMirrored({"volumes/a", "volumes/b", "volumes/c"});
  Hold("volumes/d", "scans/a");
  // The first one that is dropped makes no room, and the next would be, but for the drain.
  ArmFailpoint("spill_remove:errno=5");
  on_meta_ = [this] {
    if (Disk().mirrors == 2) spiller_->BeginDrain();
  };
  EXPECT_THAT(Spill("volumes/d", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "spill.disk_bytes"));
  EXPECT_FALSE(FailpointArmed());
  EXPECT_EQ(Disk().mirrors, 2);
}

TEST_F(SmallTierTest, TheOneThatIsBeingMadeGoesFirst) {
  HoldMirrored({"volumes/a", "volumes/b"});
  Hold("volumes/c", "scans/a");
  Hold("volumes/d", "scans/a");
  std::promise<absl::StatusOr<VolumeStatus>> spilled;
  ASSERT_OK_AND_ASSIGN(VolumeMirroring begun, volumes_.tiers().BeginMirror(any_));
  ASSERT_EQ(begun.hold().status.name, "volumes/c");
  const absl::Status mirrored =
      spiller_->Mirror(std::move(begun), [&](const std::function<bool()>& stopped) {
        EXPECT_THAT(spiller_->Spill("volumes/d", Tier::kDisk, {},
                                    [&](absl::StatusOr<VolumeStatus> volume) {
                                      spilled.set_value(std::move(volume));
                                    }),
                    IsOk());
        while (!stopped()) std::this_thread::yield();  // the spill wants the room
        return false;
      });
  EXPECT_THAT(mirrored, IsError(absl::StatusCode::kCancelled, ""));
  ASSERT_THAT(spilled.get_future().get(), IsOk());
  EXPECT_EQ(Disk().mirrors, 2);
  EXPECT_EQ(Failures(), 0);
}

TEST_F(SmallTierTest, AResultThatFindsNoRoomStaysWhereItIs) {
  for (const char* name : {"volumes/a", "volumes/b", "volumes/c"}) {
    Hold(name, "scans/a");
    ASSERT_THAT(Spill(name, Tier::kDisk), IsOk());
  }
  Hold("volumes/d", "jobs/a");
  EXPECT_THAT(spiller_->SpillResult("volumes/d", Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "spill.disk_bytes"));
  EXPECT_EQ(Get("volumes/d").tier, Tier::kDevice);
  EXPECT_EQ(Get("volumes/d").moving, Move::kNone);
  EXPECT_NE(Get("volumes/d").last_error, "");
  ASSERT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  ASSERT_THAT(spiller_->SpillResult("volumes/d", Tier::kDisk), IsOk());
  spiller_ = nullptr;  // which ends what has begun
  EXPECT_EQ(Get("volumes/d").tier, Tier::kDisk);
}

/// The thread that makes them.
class MirrorerTest : public MirrorTest {
 protected:
  void Start() {
    mirrorer_.emplace(Mirrorer::Context{.spiller = spiller_.get(),
                                        .volumes = &volumes_,
                                        .busy = [this] { return busy_.load(); }},
                      Mirrorer::Pace{.quiet = milliseconds(2),
                                     .held_seconds = 0,
                                     .look = milliseconds(1),
                                     .first_pause = milliseconds(1),
                                     .most_pause = milliseconds(2)});
  }
  template <class Condition>
  void Until(Condition met) {
    const auto end = steady_clock::now() + std::chrono::seconds(20);
    while (!met() && steady_clock::now() < end) std::this_thread::yield();
    ASSERT_TRUE(met());
  }
  std::atomic<bool> busy_{false};
  std::optional<Mirrorer> mirrorer_;  // last: its thread uses the rest
};

TEST_F(MirrorerTest, EachVolumeGetsOneTheOldestFirst) {
  Hold("volumes/a", "scans/a");
  Hold("volumes/b", "scans/a");
  Hold("volumes/c", "scans/a");
  Start();
  Until([&] { return Disk().mirrors == 3; });
  mirrorer_.reset();
  EXPECT_EQ(details_.names_, (std::vector<std::string>{"volumes/a", "volumes/b", "volumes/c"}));
  EXPECT_EQ(Found().size(), 3u);
}

TEST_F(MirrorerTest, OneThatFailsIsTriedAgainAndHoldsUpNoOther) {
  Hold("volumes/a", "scans/a");
  Hold("volumes/b", "scans/a");
  ArmFailpoint("spill_write:errno=28");
  Start();
  Until([&] { return Disk().mirrors == 2; });
  EXPECT_EQ(Failures(), 1);
}

TEST_F(MirrorerTest, WhileTheDiskIsInUseNoneIsMade) {
  busy_ = true;
  Hold("volumes/a", "scans/a");
  Start();
  // It looks many times meanwhile.
  const auto end = steady_clock::now() + milliseconds(100);
  while (steady_clock::now() < end) {
    ASSERT_EQ(Disk().mirrors, 0);
    std::this_thread::yield();
  }
  busy_ = false;
  Until([&] { return Disk().mirrors == 1; });
}

TEST_F(MirrorerTest, ACopyWaitsUntilTheDiskIsFreeAndItsEndGivesItUp) {
  std::atomic<bool> begun{false};
  on_meta_ = [&] {
    busy_ = true;  // from the begin of the copy on
    begun = true;
  };
  Hold("volumes/a", "scans/a");
  Start();
  Until([&] { return begun.load(); });
  EXPECT_EQ(Disk().mirrors, 0);
  mirrorer_.reset();
  ExpectNothingIsLeft();
}

TEST_F(MirrorerTest, AVolumeThatLeavesWhileItsCopyWaitsIsLetGo) {
  on_meta_ = [&] { busy_ = true; };
  Hold("volumes/a", "scans/a");
  Start();
  Until([&] { return std::filesystem::exists(temp_ / "spill/.a-1.tmp"); });
  ASSERT_THAT(volumes_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  Until([&] { return folder_->used_bytes() == 0; });
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace octavo::engine
