// Moves of volumes, and what becomes of a volume whose move is dropped.

#include "server/volume/volume_tiers.h"

#include <new>
#include <type_traits>
#include <utility>

#include "gpu/base/status.h"
#include "tests/server/volume/table_fixture.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class SomeBytes final : public SpilledVolume {
 public:
  explicit SomeBytes(int* removed) : removed_(removed) {}
  Tier tier() const override { return Tier::kDisk; }
  int64_t bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    return absl::NotFoundError("no bytes");
  }
  void Remove() const override { ++*removed_; }

 private:
  int* const removed_;
};

class VolumeTiersTest : public TableFixture {
 protected:
  VolumeBytes Spilled() {
    return {.slot = nullptr, .spilled = std::make_shared<const SomeBytes>(&removed_)};
  }
  VolumeBytes OnDevice() { return {.slot = Slot(), .spilled = nullptr}; }
  void Spill(const std::string& name) {
    ASSERT_OK_AND_ASSIGN(VolumeMove move, tiers_.BeginSpill(name));
    ASSERT_TRUE(std::move(move).Finish(Spilled()));
    told_.clear();
  }
  void Leave(const std::string& name) {
    VolumeBytes gone;  // released after the lock
    MutexLock lock(table_.mutex());
    gone = table_.Leave(**table_.Find(name), VolumeState::kDiscarded, Reason::kDiscarded, "",
                        "discarded");
  }
  int removed_ = 0;
  VolumeTiers tiers_{table_};
};

TEST_F(VolumeTiersTest, ThereAndBack) {
  const auto slot = Held("volumes/a", {});
  With("volumes/a", [](VolumeEntry& entry) {
    entry.stripe_bscans = 4;
    entry.device = 1;
    entry.device_name = "devices/7";  // of an earlier process
  });
  ASSERT_OK_AND_ASSIGN(VolumeMove move, tiers_.BeginSpill("volumes/a"));
  EXPECT_TRUE(move.under_way());
  EXPECT_EQ(move.hold().slot, slot.lock());
  EXPECT_EQ(Get("volumes/a").moving, Move::kSpilling);
  EXPECT_TRUE(std::move(move).Finish(Spilled()));
  EXPECT_TRUE(slot.expired());
  VolumeStatus now = Get("volumes/a");
  EXPECT_EQ(now.tier, Tier::kDisk);
  EXPECT_EQ(now.moving, Move::kNone);
  EXPECT_EQ(now.stripe_bscans, 0) << "in one piece";
  EXPECT_THAT(tiers_.BeginRelocate("volumes/a"),
              IsError(absl::StatusCode::kFailedPrecondition, "not on its device (tier DISK)"));

  ASSERT_OK_AND_ASSIGN(move, tiers_.BeginRestore("volumes/a"));
  EXPECT_NE(move.hold().spilled, nullptr);
  EXPECT_EQ(Get("volumes/a").moving, Move::kRestoring);
  EXPECT_TRUE(std::move(move).Finish(OnDevice()));
  EXPECT_EQ(removed_, 1);
  now = Get("volumes/a");
  EXPECT_EQ(now.tier, Tier::kDevice);
  EXPECT_EQ(now.device, "devices/1");
  // The volume is on the device: no restore begins.
  ASSERT_OK_AND_ASSIGN(move, tiers_.BeginRestore("volumes/a"));
  EXPECT_FALSE(move.under_way());
  EXPECT_NE(move.hold().slot, nullptr);
  EXPECT_EQ(Get("volumes/a").moving, Move::kNone);
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(VolumeTiersTest, OneMoveAtATime) {
  for (const Move move : {Move::kSpilling, Move::kRestoring, Move::kRelocating}) {
    const std::string name = std::string("volumes/") + Name(move);
    Held(name, {});
    With(name, [move](VolumeEntry& entry) { entry.moving = move; });
    for (const absl::Status& refused :
         {tiers_.BeginSpill(name).status(), tiers_.BeginRestore(name).status(),
          tiers_.BeginRelocate(name).status()}) {
      EXPECT_THAT(refused, IsError(absl::StatusCode::kFailedPrecondition,
                                   std::string("being moved already (") + Name(move) + ")"));
      EXPECT_EQ(InfoOf(refused).reason, Reason::kMoving);
    }
  }
  EXPECT_THAT(tiers_.BeginSpillOldest("scans/a"), IsError(absl::StatusCode::kNotFound, "scans/a"));
}

TEST_F(VolumeTiersTest, AMoveThatFailsLeavesTheVolumeWhereItIs) {
  const auto slot = Held("volumes/a", {});
  ASSERT_OK_AND_ASSIGN(VolumeMove move, tiers_.BeginSpill("volumes/a"));
  EXPECT_FALSE(std::move(move).Finish(absl::ResourceExhaustedError("no room")));
  EXPECT_FALSE(slot.expired());
  EXPECT_EQ(Get("volumes/a").last_error, "no room");
  EXPECT_EQ(Get("volumes/a").moving, Move::kNone);
  EXPECT_TRUE(told_.empty());
}

TEST_F(VolumeTiersTest, WhatWasMadeForAVolumeThatHasLeftIsRemoved) {
  Held("volumes/a", {});
  ASSERT_OK_AND_ASSIGN(VolumeMove move, tiers_.BeginSpill("volumes/a"));
  Leave("volumes/a");
  EXPECT_FALSE(std::move(move).Finish(Spilled()));
  EXPECT_EQ(removed_, 1);
  EXPECT_EQ(Get("volumes/a").tier, Tier::kDevice);
}

/// A volume at the begin of each kind of move.
class VolumeMoveTest : public VolumeTiersTest, public ::testing::WithParamInterface<Move> {
 protected:
  void SetUp() override {
    Held(kName, {});
    if (GetParam() == Move::kRestoring) Spill(kName);
  }
  absl::StatusOr<VolumeMove> Begin() {
    switch (GetParam()) {
      case Move::kSpilling: return tiers_.BeginSpill(kName);
      case Move::kRestoring: return tiers_.BeginRestore(kName);
      default: return tiers_.BeginRelocate(kName);
    }
  }
  VolumeBytes Made() { return GetParam() == Move::kSpilling ? Spilled() : OnDevice(); }
  Tier Source() { return GetParam() == Move::kRestoring ? Tier::kDisk : Tier::kDevice; }
  Tier Target() { return GetParam() == Move::kSpilling ? Tier::kDisk : Tier::kDevice; }
  /// It is where it was, nobody was told of a change, and it can be moved.
  void ExpectAsBefore() {
    const VolumeStatus now = Get(kName);
    EXPECT_EQ(now.moving, Move::kNone);
    EXPECT_EQ(now.tier, Source());
    EXPECT_EQ(now.state, VolumeState::kHeld);
    EXPECT_EQ(now.last_error,
              GetParam() == Move::kSpilling ? "the server gave up the move before its end" : "");
    EXPECT_TRUE(told_.empty());
    EXPECT_EQ(removed_, 0);
    ASSERT_OK_AND_ASSIGN(VolumeMove again, Begin());
    EXPECT_TRUE(std::move(again).Finish(Made()));
    EXPECT_EQ(Get(kName).tier, Target());
  }
  static constexpr char kName[] = "volumes/a";
};

TEST_P(VolumeMoveTest, OneThatIsDroppedHasFailed) {
  {
    ASSERT_OK_AND_ASSIGN(const VolumeMove move, Begin());
    EXPECT_EQ(Get(kName).moving, GetParam());
  }
  ExpectAsBefore();
}

TEST_P(VolumeMoveTest, AnExceptionEndsIt) {
  try {
    const VolumeMove move = Begin().value();
    EXPECT_EQ(Get(kName).moving, GetParam());
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    ExpectAsBefore();
  }
}

TEST_P(VolumeMoveTest, AnEarlyReturnEndsIt) {
  const auto run = [this](const absl::Status& error) -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(VolumeMove move, Begin());
    OCTAVO_RETURN_IF_ERROR(error);
    (void)std::move(move).Finish(Made());
    return absl::OkStatus();
  };
  EXPECT_THAT(run(absl::UnavailableError("the device is gone")),
              IsError(absl::StatusCode::kUnavailable, "gone"));
  ExpectAsBefore();
}

TEST_P(VolumeMoveTest, TheOwnerThatHasItLastEndsIt) {
  ASSERT_OK_AND_ASSIGN(VolumeMove first, Begin());
  {
    VolumeMove second = std::move(first);
    EXPECT_FALSE(first.under_way());  // NOLINT(bugprone-use-after-move)
    first = std::move(second);
    EXPECT_FALSE(second.under_way());  // NOLINT(bugprone-use-after-move)
  }
  EXPECT_EQ(Get(kName).moving, GetParam()) << "not with an owner that it has left";
  Held("volumes/b", {});
  ASSERT_OK_AND_ASSIGN(first, tiers_.BeginSpill("volumes/b"));
  EXPECT_EQ(Get("volumes/b").moving, Move::kSpilling);
  ExpectAsBefore();  // what took its place ended it
}

TEST_P(VolumeMoveTest, ItEndsOnce) {
  // Finish uses the move up, and whoever calls it says so (std::move).
  static_assert(std::is_invocable_v<decltype(&VolumeMove::Finish), VolumeMove, VolumeBytes>);
  static_assert(!std::is_invocable_v<decltype(&VolumeMove::Finish), VolumeMove&, VolumeBytes>);
  static_assert(!std::is_copy_constructible_v<VolumeMove>);
  ASSERT_OK_AND_ASSIGN(VolumeMove move, Begin());
  EXPECT_TRUE(std::move(move).Finish(Made()));
  EXPECT_FALSE(move.under_way());  // NOLINT(bugprone-use-after-move)
  const size_t told = told_.size();
  const int removed = removed_;
  VolumeBytes late = Spilled();
  const std::weak_ptr<const SpilledVolume> dropped = late.spilled;
  // Another move has begun meanwhile: that one is not ended in its stead.
  ASSERT_OK_AND_ASSIGN(const VolumeMove other, Target() == Tier::kDisk ? tiers_.BeginRestore(kName)
                                                                       : tiers_.BeginSpill(kName));
  EXPECT_FALSE(std::move(move).Finish(std::move(late)));
  EXPECT_EQ(removed_, removed + 1) << "what was made for nothing";
  EXPECT_TRUE(dropped.expired());
  EXPECT_NE(Get(kName).moving, Move::kNone);
  EXPECT_EQ(Get(kName).tier, Target());
  EXPECT_EQ(told_.size(), told);
}

TEST_P(VolumeMoveTest, ItHoldsTheBytesUntilItsEnd) {
  ASSERT_OK_AND_ASSIGN(VolumeMove move, Begin());
  const std::weak_ptr<const void> bytes = Source() == Tier::kDisk
                                              ? std::shared_ptr<const void>(move.hold().spilled)
                                              : std::shared_ptr<const void>(move.hold().slot);
  Leave(kName);
  EXPECT_FALSE(bytes.expired());
  { const VolumeMove dropped = std::move(move); }
  EXPECT_TRUE(bytes.expired());
}

TEST_P(VolumeMoveTest, AVolumeThatHasLeftStaysAsItIs) {
  {
    ASSERT_OK_AND_ASSIGN(const VolumeMove dropped, Begin());
    Leave(kName);
  }
  const VolumeStatus now = Get(kName);
  EXPECT_EQ(now.state, VolumeState::kDiscarded);
  EXPECT_EQ(now.moving, Move::kNone);
  EXPECT_EQ(now.last_error, "");
  EXPECT_TRUE(told_.empty());
}

TEST_P(VolumeMoveTest, AVolumeThatIsForgottenMeanwhileIsNoMatter) {
  ASSERT_OK_AND_ASSIGN(VolumeMove move, Begin());
  Leave(kName);
  clock_.Advance(601);
  {
    MutexLock lock(table_.mutex());
    table_.Purge();
    ASSERT_FALSE(table_.Find(kName).ok());
  }
  const int removed = removed_;
  EXPECT_FALSE(std::move(move).Finish(Spilled()));
  EXPECT_EQ(removed_, removed + 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, VolumeMoveTest,
                         ::testing::Values(Move::kSpilling, Move::kRestoring, Move::kRelocating),
                         [](const auto& kind) { return std::string(Name(kind.param)); });

}  // namespace
}  // namespace octavo::engine
