#include "server/volume/volume_store.h"

#include <new>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/volume_callback.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;

class EmptyVolume final : public SpilledVolume {
  Tier tier() const override { return Tier::kDisk; }
  int64_t bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    return absl::UnimplementedError("it is empty");
  }
  void Remove() const override {}
};

class VolumeStoreTest : public ::testing::Test {
 protected:
  VolumeStoreTest() { store_.AddObserver(&observer_); }
  VolumeStatus Status(const std::string& name, const std::string& scan = "scans/a") {
    VolumeStatus status;
    status.name = name;
    status.scan = scan;
    return status;
  }
  /// An acquired volume. The weak pointer expires when its memory is freed.
  std::weak_ptr<VolumeSlot> Acquire(const std::string& name, const std::string& scan = "scans/a") {
    auto slot = std::make_shared<VolumeSlot>();
    slot->charge =
        ledger_
            .Reserve(0, scan, "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    store_.Add(Status(name, scan), slot, 0);
    return slot;
  }
  std::weak_ptr<VolumeSlot> Held(const std::string& name, bool kept = true,
                                 const std::string& scan = "scans/a") {
    auto slot = Acquire(name, scan);
    store_.Seal(Status(name, scan), kept);
    return slot;
  }
  VolumeState StateOf(const std::string& name) { return store_.Get(name).value().state; }

  FakeClock clock_;
  Ledger ledger_{{1000}};
  std::vector<std::pair<std::string, VolumeState>> changes_;
  octavo::testing::VolumeCallback observer_{
      [this](const VolumeStatus& v) { changes_.emplace_back(v.name, v.state); }};
  VolumeStore store_{&ledger_, &clock_};
};

TEST(VolumeTransitions, ExactlyThoseOfTheStateMachine) {
  using S = VolumeState;
  const std::vector<std::pair<S, S>> allowed = {
      {S::kAcquiring, S::kHeld}, {S::kAcquiring, S::kFailed},     {S::kHeld, S::kCommitting},
      {S::kHeld, S::kDiscarded}, {S::kCommitting, S::kCommitted}, {S::kCommitting, S::kHeld}};
  for (int from = 1; from <= 6; ++from) {
    for (int to = 1; to <= 6; ++to) {
      const std::pair<S, S> step{static_cast<S>(from), static_cast<S>(to)};
      const bool wanted = std::find(allowed.begin(), allowed.end(), step) != allowed.end();
      const absl::Status status = CheckTransition("volumes/x", step.first, step.second);
      EXPECT_EQ(status.ok(), wanted) << Name(step.first) << " " << Name(step.second);
      if (!wanted)
        EXPECT_THAT(status, IsError(absl::StatusCode::kFailedPrecondition, Name(step.first)));
    }
  }
}

TEST_F(VolumeStoreTest, EachObserverIsToldInItsTurnWhateverTheOthersDo) {
  std::vector<std::string> told;
  octavo::testing::VolumeCallback first([&](const VolumeStatus& v) {
    told.push_back(absl::StrCat("first ", Name(v.state)));
    throw std::bad_alloc();
  });
  octavo::testing::VolumeCallback second(
      [&](const VolumeStatus& v) { told.push_back(absl::StrCat("second ", Name(v.state))); });
  VolumeStore store(&ledger_, &clock_);
  store.AddObserver(&first);
  store.AddObserver(&second);
  auto slot = std::make_shared<VolumeSlot>();
  slot->charge =
      ledger_
          .Reserve(0, "scans/a", "",
                   {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
          .value()[0];
  store.Add(Status("volumes/x"), slot, 0);
  store.Seal(Status("volumes/x"), /*kept=*/false);
  EXPECT_EQ(told, (std::vector<std::string>{"first ACQUIRING", "second ACQUIRING", "first HELD",
                                            "second HELD"}));
}

TEST_F(VolumeStoreTest, CommitLetsGoOfTheMemoryAndDiscardToo) {
  const auto a = Held("volumes/a"), b = Held("volumes/b");
  EXPECT_EQ(ledger_.UseOf(0).held, 20);
  {
    ASSERT_OK_AND_ASSIGN(const VolumeHold pinned, store_.Hold("volumes/a", HoldKind::kMemory));
    ASSERT_OK_AND_ASSIGN(VolumeCommit commit, store_.BeginCommit("volumes/a"));
    EXPECT_THAT(store_.Discard("volumes/a", Reason::kDiscarded, ""),
                IsError(absl::StatusCode::kFailedPrecondition, "COMMITTING"));
    EXPECT_THAT(store_.BeginCommit("volumes/a"),
                IsError(absl::StatusCode::kFailedPrecondition, "COMMITTING"));
    std::move(commit).Finish(storage::CommitOutcome{.path = "/x"});
    EXPECT_FALSE(a.expired()) << "a reader keeps it";
  }
  EXPECT_TRUE(a.expired());
  EXPECT_THAT(store_.Hold("volumes/a", HoldKind::kDevice),
              IsError(absl::StatusCode::kNotFound, "has left memory: COMMITTED"));
  EXPECT_THAT(store_.Discard("volumes/b", Reason::kDiscarded, "by a client"), IsOk());
  EXPECT_TRUE(b.expired());
  EXPECT_THAT(store_.Discard("volumes/b", Reason::kDiscarded, ""),
              IsError(absl::StatusCode::kFailedPrecondition, "DISCARDED"));
  EXPECT_EQ(store_.Count().finished["committed"], 1);
  EXPECT_EQ(store_.Count().finished["discarded"], 1);
}

TEST_F(VolumeStoreTest, AFailedCommitLeavesItHeldAndSaysWhy) {
  const auto slot = Held("volumes/a", /*kept=*/false);
  ASSERT_OK_AND_ASSIGN(VolumeCommit commit, store_.BeginCommit("volumes/a"));
  EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a")) << "not while it is committed";
  std::move(commit).Finish(absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(StateOf("volumes/a"), VolumeState::kHeld);
  EXPECT_EQ(store_.Get("volumes/a")->last_error, "disk full");
  EXPECT_FALSE(slot.expired());
  EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a")) << "somebody wanted it";
  EXPECT_EQ(store_.CountOf("scans/a").commit_failures, 1);
}

/// A volume of a LIVE ring whose commit has begun, and how it is after a commit that was dropped.
class VolumeCommitTest : public VolumeStoreTest {
 protected:
  void SetUp() override {
    slot_ = Held("volumes/a", /*kept=*/false);
    changes_.clear();
  }
  void ExpectHeldAgain() {
    EXPECT_EQ(StateOf("volumes/a"), VolumeState::kHeld);
    EXPECT_FALSE(slot_.expired());
    EXPECT_EQ(store_.Get("volumes/a")->last_error, "the server gave up the commit before its end");
    EXPECT_EQ(store_.CountOf("scans/a").commit_failures, 1);
    EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a")) << "somebody wanted it";
    EXPECT_EQ(changes_,
              (std::vector<std::pair<std::string, VolumeState>>{
                  {"volumes/a", VolumeState::kCommitting}, {"volumes/a", VolumeState::kHeld}}))
        << "those who wait for the end of the commit hear of it";
    ASSERT_OK_AND_ASSIGN(VolumeCommit again, store_.BeginCommit("volumes/a"));
    std::move(again).Finish(storage::CommitOutcome{.path = "/x"});
    EXPECT_EQ(StateOf("volumes/a"), VolumeState::kCommitted);
  }
  std::weak_ptr<VolumeSlot> slot_;
};

TEST_F(VolumeCommitTest, OneThatIsDroppedHasFailed) {
  {
    ASSERT_OK_AND_ASSIGN(const VolumeCommit commit, store_.BeginCommit("volumes/a"));
    EXPECT_TRUE(commit.under_way());
    EXPECT_EQ(StateOf("volumes/a"), VolumeState::kCommitting);
  }
  ExpectHeldAgain();
}

TEST_F(VolumeCommitTest, AnExceptionEndsIt) {
  try {
    const VolumeCommit commit = store_.BeginCommit("volumes/a").value();
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    ExpectHeldAgain();
  }
}

TEST_F(VolumeCommitTest, WhatTakesItsPlaceEndsIt) {
  ASSERT_OK_AND_ASSIGN(VolumeCommit first, store_.BeginCommit("volumes/a"));
  VolumeCommit second = std::move(first);
  EXPECT_FALSE(first.under_way());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(StateOf("volumes/a"), VolumeState::kCommitting);
  second = VolumeCommit();
  ExpectHeldAgain();
}

TEST_F(VolumeCommitTest, ItEndsOnce) {
  // Finish uses the commit up, and whoever calls it says so (std::move).
  using Outcome = absl::StatusOr<storage::CommitOutcome>;
  static_assert(std::is_invocable_v<decltype(&VolumeCommit::Finish), VolumeCommit, Outcome>);
  static_assert(!std::is_invocable_v<decltype(&VolumeCommit::Finish), VolumeCommit&, Outcome>);
  static_assert(!std::is_copy_constructible_v<VolumeCommit>);
  ASSERT_OK_AND_ASSIGN(VolumeCommit commit, store_.BeginCommit("volumes/a"));
  std::move(commit).Finish(absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(commit.under_way());  // NOLINT(bugprone-use-after-move)
  // Another commit has begun meanwhile: that one is not ended in its stead.
  ASSERT_OK_AND_ASSIGN(VolumeCommit other, store_.BeginCommit("volumes/a"));
  changes_.clear();
  std::move(commit).Finish(storage::CommitOutcome{.path = "/x"});
  EXPECT_EQ(StateOf("volumes/a"), VolumeState::kCommitting);
  EXPECT_EQ(store_.CountOf("scans/a").commit_failures, 1);
  EXPECT_TRUE(changes_.empty());
  std::move(other).Finish(storage::CommitOutcome{.path = "/y"});
  EXPECT_EQ(store_.Get("volumes/a")->commit.path, "/y");
}

TEST_F(VolumeCommitTest, AVolumeThatIsCommittedKeepsNoSlotBecauseOfIt) {
  ASSERT_OK_AND_ASSIGN(const VolumeCommit queued, store_.BeginCommit("volumes/a"));
  ASSERT_OK_AND_ASSIGN(VolumeMove move, store_.tiers().BeginSpill("volumes/a"));
  EXPECT_TRUE(std::move(move).Finish(
      VolumeBytes{.slot = nullptr, .spilled = std::make_shared<const EmptyVolume>()}));
  EXPECT_TRUE(slot_.expired());
  EXPECT_EQ(StateOf("volumes/a"), VolumeState::kCommitting);
}

TEST_F(VolumeStoreTest, LiveOverwritesTheOldestThatNobodyKeeps) {
  Held("volumes/other", false, "scans/b");
  Held("volumes/1", false), Held("volumes/2", false), Held("volumes/3", false);
  EXPECT_THAT(store_.ring().Mark("volumes/1", 2), IsOk());
  EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a"));
  EXPECT_EQ(StateOf("volumes/1"), VolumeState::kHeld);
  EXPECT_EQ(StateOf("volumes/2"), VolumeState::kDiscarded);
  EXPECT_THAT(store_.ring().Mark("volumes/3", 2), IsOk());
  EXPECT_THAT(store_.ring().Mark("volumes/3", 2), IsOk()) << "again is nothing new";
  Held("volumes/4", false);
  EXPECT_THAT(store_.ring().Mark("volumes/4", 2),
              IsError(absl::StatusCode::kResourceExhausted, "all of its 2 hold slots"));
  EXPECT_TRUE(store_.ring().OverwriteOldest("scans/a"));
  EXPECT_FALSE(store_.ring().OverwriteOldest("scans/a"));
  EXPECT_EQ(StateOf("volumes/other"), VolumeState::kHeld) << "another scan's";
  EXPECT_EQ(store_.CountOf("scans/a").overwritten, 2);
}

TEST_F(VolumeStoreTest, AcquiringVolumesCannotBeReadOrTaken) {
  const auto slot = Acquire("volumes/a");
  EXPECT_THAT(store_.Hold("volumes/a", HoldKind::kDevice),
              IsError(absl::StatusCode::kFailedPrecondition, "still being acquired"));
  EXPECT_THAT(store_.BeginCommit("volumes/a"),
              IsError(absl::StatusCode::kFailedPrecondition, "ACQUIRING"));
  EXPECT_THAT(store_.Discard("volumes/a", Reason::kDiscarded, ""),
              IsError(absl::StatusCode::kFailedPrecondition, "ACQUIRING"));
  EXPECT_THAT(store_.ring().Mark("volumes/a", 9),
              IsError(absl::StatusCode::kFailedPrecondition, "ACQUIRING"));
  store_.Fail("volumes/a", Reason::kCancelled, "cancelled");
  EXPECT_EQ(StateOf("volumes/a"), VolumeState::kFailed);
  EXPECT_TRUE(slot.expired());
  store_.Seal(Status("volumes/a"), true);
  EXPECT_EQ(StateOf("volumes/a"), VolumeState::kFailed) << "what failed stays failed";
}

TEST_F(VolumeStoreTest, TombstonesAreNotMoreThanTenThousand) {
  Held("volumes/early");
  for (int i = 0; i < 10'050; ++i) {
    const std::string name = absl::StrCat("volumes/", i);
    store_.Add(Status(name, absl::StrCat("scans/", i)), std::make_shared<VolumeSlot>(), 0);
    store_.Fail(name, Reason::kCancelled, "gone");
  }
  const auto list = store_.List();
  ASSERT_EQ(list.size(), 10'001u);
  EXPECT_EQ(list.front().name, "volumes/early") << "in the order they came, wherever they are now";
  EXPECT_EQ(list[1].name, "volumes/50");
  EXPECT_EQ(list.back().name, "volumes/10049");
  EXPECT_EQ(StateOf("volumes/10049"), VolumeState::kFailed);
  EXPECT_THAT(store_.Get("volumes/49"), IsError(absl::StatusCode::kNotFound, "the last 10000"));
  EXPECT_THAT(store_.Discard("volumes/early", Reason::kDiscarded, ""), IsOk());
  EXPECT_EQ(store_.List().front().name, "volumes/early");
}

TEST_F(VolumeStoreTest, TombstonesAreRememberedForTenMinutes) {
  Held("volumes/a");
  ASSERT_THAT(store_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  clock_.Advance(599);
  EXPECT_EQ(store_.List().size(), 1u);
  clock_.Advance(2);
  EXPECT_EQ(store_.List().size(), 0u);
  EXPECT_THAT(store_.Get("volumes/a"), IsError(absl::StatusCode::kNotFound, "no volume volumes/a"));
}

TEST_F(VolumeStoreTest, VolumesInMemoryAreCountedForTheirSessions) {
  const auto add = [this](const std::string& name, const std::string& session) {
    VolumeStatus status = Status(name);
    status.session = session;
    store_.AddStored(status, std::make_shared<const EmptyVolume>());
  };
  add("volumes/a", "sessions/1"), add("volumes/b", "sessions/1"), add("volumes/c", "sessions/2");
  add("volumes/d", "");
  VolumeStatus acquiring = Status("volumes/e");
  acquiring.session = "sessions/2";
  store_.Add(acquiring, std::make_shared<VolumeSlot>(), 0);
  using Names = std::vector<std::string>;
  EXPECT_EQ(store_.NamesOfSession("sessions/1"), (Names{"volumes/a", "volumes/b"}));
  EXPECT_EQ(store_.NamesOfSession("sessions/2"), (Names{"volumes/c", "volumes/e"}));
  ASSERT_THAT(store_.Discard("volumes/c", Reason::kDiscarded, ""), IsOk());
  EXPECT_EQ(store_.NamesOfSession("sessions/2"), (Names{"volumes/e"}));
  EXPECT_EQ(store_.NamesOfSession(""), Names{});
}

TEST_F(VolumeStoreTest, AListGoesOnAfterANumber) {
  for (const char* name : {"volumes/a", "volumes/b", "volumes/c", "volumes/d"})
    Held(name, true, name[8] == 'c' ? "scans/c" : "scans/a");
  ASSERT_THAT(store_.Discard("volumes/b", Reason::kDiscarded, ""), IsOk());
  const auto names = [&](const VolumeQuery& query) {
    std::string text;
    for (const VolumeStatus& volume : store_.List(query)) text += volume.name.substr(8);
    return text;
  };
  EXPECT_EQ(names({}), "abcd") << "oldest first, whether in memory or not";
  EXPECT_EQ(names({.in_memory = true}), "acd");
  EXPECT_EQ(names({.parent = "scans/a"}), "abd");
  EXPECT_EQ(names({.parent = "scans/a", .in_memory = true}), "ad");
  const uint64_t first = store_.List({.most = 1})[0].number;
  EXPECT_EQ(names({.after = first, .most = 2}), "bc");
  EXPECT_EQ(names({.in_memory = true, .after = first, .most = 1}), "c");
  EXPECT_EQ(names({.parent = "scans/a", .in_memory = true, .after = first}), "d");
  EXPECT_EQ(names({.after = first + 3}), "");
}

TEST_F(VolumeStoreTest, TotalsAreKeptOfScansThatAreForgottenOneDay) {
  Held("volumes/a", true, "scans/a"), Held("volumes/b", true, "jobs/b");
  VolumeStatus found = Status("volumes/c", "scans/c");
  found.recovered = true;
  store_.AddStored(found, std::make_shared<const EmptyVolume>());
  for (const char* name : {"volumes/a", "volumes/b", "volumes/c"})
    ASSERT_THAT(store_.Discard(name, Reason::kDiscarded, ""), IsOk());
  EXPECT_EQ(store_.CountOf("scans/a").discarded, 1);
  EXPECT_EQ(store_.CountOf("jobs/b").discarded, 0);
  EXPECT_EQ(store_.CountOf("scans/c").discarded, 0);
  store_.ForgetScan("scans/a");
  EXPECT_EQ(store_.CountOf("scans/a").discarded, 0);
}

TEST_F(VolumeStoreTest, TellsEveryChangeInOrder) {
  Held("volumes/a");
  ASSERT_OK_AND_ASSIGN(VolumeCommit commit, store_.BeginCommit("volumes/a"));
  std::move(commit).Finish(absl::AbortedError("x"));
  ASSERT_THAT(store_.Discard("volumes/a", Reason::kDiscarded, ""), IsOk());
  using S = VolumeState;
  EXPECT_EQ(changes_, (std::vector<std::pair<std::string, S>>{{"volumes/a", S::kAcquiring},
                                                              {"volumes/a", S::kHeld},
                                                              {"volumes/a", S::kCommitting},
                                                              {"volumes/a", S::kHeld},
                                                              {"volumes/a", S::kDiscarded}}));
}

}  // namespace
}  // namespace octavo::engine
