// The volume store and volumes that other processes map. It spills no volume while it is mapped,
// keeps a volume of a ring while it is lent, and can move a volume out of a slot that another
// process keeps.
#include <new>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/volume/volume_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_mappings.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;

class LendingTest : public ::testing::Test {
 protected:
  LendingTest() { store_.SetProtections({.mappings = &mappings_}); }
  std::shared_ptr<VolumeSlot> Slot(const std::string& owner) {
    auto slot = std::make_shared<VolumeSlot>();
    slot->charge =
        ledger_
            .Reserve(0, owner, "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    return slot;
  }
  std::weak_ptr<VolumeSlot> Held(const std::string& name, bool kept = true) {
    VolumeStatus status;
    status.name = name;
    status.scan = "scans/a";
    const auto slot = Slot("scans/a");
    store_.Add(status, slot, 0);
    store_.Seal(status, kept);
    return slot;
  }
  /// True if the volume is kept, but only for its borrowers.
  bool Lent(const std::string& name) {
    const VolumeHold pinned = store_.Hold(name, HoldKind::kMemory).value();
    return pinned.status.kept &&
           !store_.WhileMappable(pinned, /*borrowed=*/false, [] { return absl::OkStatus(); }).ok();
  }
  absl::StatusOr<VolumeHold> Lend(const std::string& name, int64_t hold_slots) {
    return store_.Hold(name, HoldKind::kLoan, hold_slots);
  }
  void Spill(const std::string& name, std::shared_ptr<const SpilledVolume> to) {
    ASSERT_OK_AND_ASSIGN(VolumeMove move, store_.tiers().BeginSpill(name));
    EXPECT_TRUE(std::move(move).Finish(VolumeBytes{.slot = nullptr, .spilled = std::move(to)}));
  }
  void Restore(const std::string& name, std::shared_ptr<VolumeSlot> to) {
    ASSERT_OK_AND_ASSIGN(VolumeMove move, store_.tiers().BeginRestore(name));
    EXPECT_TRUE(std::move(move).Finish(VolumeBytes{.slot = std::move(to), .spilled = nullptr}));
  }
  bool Kept(const std::string& name) { return store_.Get(name).value().kept; }

  FakeClock clock_;
  Ledger ledger_{{1000}};
  octavo::testing::FakeMappings mappings_;
  std::set<std::string>& mapped_ = mappings_.names;
  VolumeStore store_{&ledger_, &clock_};
};

TEST_F(LendingTest, TheOldestThatNobodyMapsIsSpilled) {
  for (int i = 0; i < 4; ++i) Held(absl::StrCat("volumes/", i));
  mapped_ = {"volumes/0", "volumes/2"};
  EXPECT_EQ(store_.MappedOf("scans/a"), 2);
  EXPECT_EQ(store_.MappedOf("scans/b"), 0);
  ASSERT_OK_AND_ASSIGN(const VolumeMove first, store_.tiers().BeginSpillOldest("scans/a"));
  EXPECT_EQ(first.hold().status.name, "volumes/1");
  ASSERT_OK_AND_ASSIGN(const VolumeMove second, store_.tiers().BeginSpillOldest("scans/a"));
  EXPECT_EQ(second.hold().status.name, "volumes/3");
  EXPECT_THAT(store_.tiers().BeginSpillOldest("scans/a"),
              IsError(absl::StatusCode::kNotFound, "scans/a"));  // no other volume, ever
  mapped_ = {"volumes/0"};
  ASSERT_OK_AND_ASSIGN(const VolumeMove third, store_.tiers().BeginSpillOldest("scans/a"));
  EXPECT_EQ(third.hold().status.name, "volumes/2");
}

TEST_F(LendingTest, ALentVolumeIsKeptUntilTheLastOneGivesItBack) {
  Held("volumes/a", /*kept=*/false);
  Held("volumes/b", /*kept=*/false);
  EXPECT_FALSE(Lent("volumes/a"));
  ASSERT_OK_AND_ASSIGN(VolumeHold first, Lend("volumes/a", 1));
  EXPECT_EQ(first.kind, HoldKind::kLoan);
  // One slot, for any number of loans.
  ASSERT_OK_AND_ASSIGN(VolumeHold second, Lend("volumes/a", 1));
  EXPECT_TRUE(Lent("volumes/a"));
  const absl::Status full = Lend("volumes/b", 1).status();
  EXPECT_THAT(full, IsError(absl::StatusCode::kResourceExhausted, "hold slots"));
  EXPECT_EQ(InfoOf(full).reason, Reason::kHoldSlotsFull);
  EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a"));  // volumes/b
  EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a"));
  first.Release();
  EXPECT_TRUE(Kept("volumes/a"));
  first.Release();  // a second release has no effect
  EXPECT_TRUE(Kept("volumes/a"));
  second.Release();
  EXPECT_FALSE(Kept("volumes/a"));
  EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a"));
  EXPECT_THAT(Lend("volumes/a", 1), IsError(absl::StatusCode::kFailedPrecondition, "DISCARDED"));
}

// A loan ends on every path: after an error on the way, with the last copy, and for a volume that
// is gone by then.
TEST_F(LendingTest, ALoanEndsWithItsScope) {
  Held("volumes/a", /*kept=*/false);
  const auto map_it = [this](const absl::Status& status) -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const VolumeHold loan, Lend("volumes/a", 1));
    EXPECT_TRUE(Kept("volumes/a"));
    OCTAVO_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  };
  EXPECT_THAT(map_it(absl::UnavailableError("the client is gone")),
              IsError(absl::StatusCode::kUnavailable, "gone"));
  EXPECT_FALSE(Kept("volumes/a"));
  try {
    const VolumeHold loan = Lend("volumes/a", 1).value();
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    EXPECT_FALSE(Kept("volumes/a"));
  }
  VolumeHold copy;
  {
    const VolumeHold loan = Lend("volumes/a", 1).value();
    copy = loan;
  }
  EXPECT_TRUE(Kept("volumes/a"));
  EXPECT_THAT(store_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  copy = VolumeHold();
  EXPECT_EQ(store_.Get("volumes/a")->state, VolumeState::kDiscarded);
}

TEST_F(LendingTest, WhatWasMarkedMeanwhileStays) {
  Held("volumes/a", false);
  ASSERT_OK_AND_ASSIGN(VolumeHold a, Lend("volumes/a", 1));
  EXPECT_THAT(store_.ring().Mark("volumes/a", 1), IsOk());
  EXPECT_FALSE(Lent("volumes/a"));
  a.Release();
  EXPECT_TRUE(Kept("volumes/a"));
  // Kept before it was lent, with the keeper's own mark.
  Held("volumes/b", true);
  ASSERT_OK_AND_ASSIGN(VolumeHold b, Lend("volumes/b", 1));
  EXPECT_FALSE(Lent("volumes/b"));
  b.Release();
  EXPECT_TRUE(Kept("volumes/b"));
  // A volume of an ended scan has no ring.
  Held("volumes/c", false);
  ASSERT_OK_AND_ASSIGN(VolumeHold c, Lend("volumes/c", 9));
  store_.ring().KeepAll("scans/a");
  c.Release();
  EXPECT_TRUE(Kept("volumes/c"));
  EXPECT_TRUE(store_.ring().Unmark("volumes/c")->kept);
}

// Between the loan and the export, any client may remove the keep mark.
TEST_F(LendingTest, AMarkThatIsTakenBackLeavesWhatIsLent) {
  for (const bool marked : {false, true}) {
    Held("volumes/a", false);
    if (marked) EXPECT_THAT(store_.ring().Mark("volumes/a", 1), IsOk());
    ASSERT_OK_AND_ASSIGN(VolumeHold loan, Lend("volumes/a", 1));
    EXPECT_THAT(store_.ring().Unmark("volumes/a"), IsOk());
    EXPECT_TRUE(Kept("volumes/a"));
    EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a"));
    loan.Release();
    EXPECT_FALSE(Kept("volumes/a"));
    EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a"));
  }
}

// The keep mark may come and go during a commit. A failed commit keeps the volume in either case.
TEST_F(LendingTest, AMarkDuringACommit) {
  const ClientVerb client;
  for (const bool fails : {true, false}) {
    const std::string name = absl::StrCat("volumes/", fails);
    Held(name, /*kept=*/false);
    ASSERT_THAT(store_.ring().Mark(name, 9), IsOk());
    ASSERT_OK_AND_ASSIGN(VolumeCommit commit, store_.BeginCommit(name, &client));
    ASSERT_THAT(store_.ring().Unmark(name, &client), IsOk());
    EXPECT_FALSE(Kept(name));
    EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a"));
    if (fails) {
      std::move(commit).Finish(absl::ResourceExhaustedError("the disk is full"));
      EXPECT_TRUE(Kept(name));
      EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a"));
    } else {
      std::move(commit).Finish(storage::CommitOutcome{.path = "/somewhere"});
      EXPECT_THAT(store_.ring().Unmark(name, &client),
                  IsError(absl::StatusCode::kFailedPrecondition,
                          "only HELD and COMMITTING volumes have a mark"));
      EXPECT_THAT(store_.ring().Mark(name, 9),
                  IsError(absl::StatusCode::kFailedPrecondition,
                          "only HELD and COMMITTING volumes can be kept"));
    }
  }
}

// Surplus raw volumes do not displace other volumes.
TEST_F(LendingTest, TheNewestOfEachKindAreKept) {
  for (const int64_t count : {0, 1, 2, 3}) {
    const auto held = [&](const std::string& name, bool raw) {
      VolumeStatus status;
      status.name = absl::StrCat("volumes/", count, name);
      status.scan = "scans/a";
      status.is_raw = raw;
      store_.Add(status, Slot("scans/a"), 0);
      store_.Seal(status, /*kept=*/false);
    };
    for (const char* name : {"a", "b"}) held(name, false);
    for (const char* name : {"c", "d", "e"}) held(name, true);
    held("f", false);
    store_.ring().KeepNewest("scans/a", count);
    std::string left;
    for (const VolumeStatus& volume : store_.List({.parent = "scans/a", .in_memory = true}))
      left += volume.name.back();
    EXPECT_EQ(left, count == 0 ? "" : count == 1 ? "ef" : count == 2 ? "bdef" : "abcdef");
    store_.ring().KeepNewest("scans/a", 0);
  }
}

// The volume's slot would not become free before the requested move ends.
TEST_F(LendingTest, WhatIsBeingMovedIsNotOverwritten) {
  for (const char* name : {"volumes/a", "volumes/b", "volumes/c"}) Held(name, /*kept=*/false);
  ASSERT_OK_AND_ASSIGN(VolumeMove move, store_.tiers().BeginSpill("volumes/a"));
  EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a"));
  EXPECT_EQ(store_.Get("volumes/a")->state, VolumeState::kHeld);
  EXPECT_EQ(store_.Get("volumes/b")->state, VolumeState::kDiscarded);
  store_.ring().KeepNewest("scans/a", 0);
  EXPECT_EQ(store_.Get("volumes/a")->state, VolumeState::kHeld);
  EXPECT_EQ(store_.Get("volumes/c")->state, VolumeState::kDiscarded);
  EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a"));
  EXPECT_FALSE(std::move(move).Finish(absl::ResourceExhaustedError("no room")));
  EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a")) << "it is the ring's again";
}

TEST_F(LendingTest, AVolumeMovesOutOfItsSlot) {
  const auto old = Held("volumes/a");
  ASSERT_OK_AND_ASSIGN(VolumeMove move, store_.tiers().BeginRelocate("volumes/a"));
  EXPECT_EQ(move.hold().slot, old.lock());
  EXPECT_THAT(store_.tiers().BeginRelocate("volumes/a"),
              IsError(absl::StatusCode::kFailedPrecondition, "being moved"));
  EXPECT_EQ(store_.Get("volumes/a")->moving, Move::kRelocating);
  const std::shared_ptr<const VolumeSlot> kept_by_a_process = move.hold().slot;
  const auto fresh = Slot("scans/a");
  EXPECT_TRUE(std::move(move).Finish(VolumeBytes{.slot = fresh, .spilled = nullptr}));
  EXPECT_EQ(store_.Get("volumes/a")->moving, Move::kNone);
  EXPECT_EQ(store_.Hold("volumes/a", HoldKind::kMemory)->slot, fresh);
  EXPECT_EQ(kept_by_a_process.use_count(), 1);  // only the process has it
  EXPECT_EQ(ledger_.UseOf(0).held, 20);         // the old one until it is detached
  // A failed move leaves the volume in place.
  ASSERT_OK_AND_ASSIGN(move, store_.tiers().BeginRelocate("volumes/a"));
  EXPECT_FALSE(std::move(move).Finish(absl::ResourceExhaustedError("no room")));
  EXPECT_EQ(store_.Hold("volumes/a", HoldKind::kMemory)->slot, fresh);
  // A volume that is discarded during the move leaves no slot behind.
  ASSERT_OK_AND_ASSIGN(move, store_.tiers().BeginRelocate("volumes/a"));
  EXPECT_THAT(store_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  auto late = Slot("scans/a");
  const std::weak_ptr<VolumeSlot> dropped = late;
  EXPECT_FALSE(std::move(move).Finish(VolumeBytes{.slot = std::move(late), .spilled = nullptr}));
  EXPECT_TRUE(dropped.expired());
  EXPECT_THAT(store_.tiers().BeginRelocate("volumes/a"),
              IsError(absl::StatusCode::kFailedPrecondition, "DISCARDED"));
}

class EmptyVolume final : public SpilledVolume {
 public:
  explicit EmptyVolume(std::function<void()> on_open = [] {}) : on_open_(std::move(on_open)) {}
  Tier tier() const override { return Tier::kHost; }
  int64_t bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    on_open_();
    return absl::NotFoundError("the file is gone");
  }
  void Remove() const override {}

 private:
  const std::function<void()> on_open_;
};

// A volume may be moved after a client has learned the location of its bytes and before it opens
// the file.
TEST_F(LendingTest, WhatIsMovedWhileItIsOpenedIsFoundWhereItIsNow) {
  Held("volumes/a");
  const auto fresh = Slot("scans/a");
  Spill("volumes/a", std::make_shared<const EmptyVolume>([&] { Restore("volumes/a", fresh); }));
  ASSERT_OK_AND_ASSIGN(const VolumeHold hold, store_.Hold("volumes/a", HoldKind::kRead));
  EXPECT_EQ(hold.slot, fresh);
  EXPECT_EQ(hold.cursor, nullptr);
  // A missing file of an existing volume is an error.
  Held("volumes/b");
  Spill("volumes/b", std::make_shared<const EmptyVolume>());
  EXPECT_THAT(store_.Hold("volumes/b", HoldKind::kRead),
              IsError(absl::StatusCode::kNotFound, "the file is gone"));
}

// The move returned the slot to the scan; the volume's present memory uses no slot of the scan.
TEST_F(LendingTest, WhatCameBackFromATierTakesNoSlotOfItsScan) {
  for (const char* name : {"volumes/a", "volumes/b", "volumes/c"}) Held(name, /*kept=*/false);
  ASSERT_THAT(store_.ring().Mark("volumes/a", 1), IsOk());
  Spill("volumes/a", std::make_shared<const EmptyVolume>());
  Restore("volumes/a", Slot("scans/a"));
  EXPECT_EQ(store_.CountOf("scans/a").kept_slots, 0);
  EXPECT_THAT(store_.ring().Mark("volumes/b", 1), IsOk());
  EXPECT_EQ(store_.CountOf("scans/a").kept_slots, 1);
  EXPECT_THAT(store_.ring().Mark("volumes/c", 1),
              IsError(absl::StatusCode::kResourceExhausted, "hold slots"));
}

}  // namespace
}  // namespace octavo::engine
