// Each pair of calls on a volume that exclude each other, made at the same moment thousands of
// times: exactly one of the two succeeds, and the error of the other names the call or the client
// that won.

#include <algorithm>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/exports/export_store.h"
#include "server/model/volume_states.h"
#include "server/session/client_sessions.h"
#include "server/session/lease.h"
#include "server/volume/volume_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/racers.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/volume_callback.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;

constexpr char kScan[] = "scans/a";
constexpr int kTries = 2048, kRounds = 500;

class NoBytes final : public SpilledVolume {
 public:
  Tier tier() const override { return Tier::kHost; }
  int64_t bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override {
    return absl::NotFoundError("no bytes");
  }
  void Remove() const override {}
};

/// The stores that calls on volumes use, connected as in the engine.
class VerbsTest : public ::testing::Test {
 public:  // public, because the tests pass the calls as member pointers
  static constexpr int kMostAtOnce = 32;
  static void SetUpTestSuite() { ClientMemory::MakeExportable(true); }
  static void TearDownTestSuite() { ClientMemory::MakeExportable(false); }

  VerbsTest() : device_(std::move(OpenDevices("host")->devices[0])) {
    socket_ =
        handoff::FdSocket::Open({.path = folder_ / "handoff.sock", .group = ""}, &clock_).value();
    exports_.Start(socket_.get(), 10);
    store_.AddObserver(&observer_);
    store_.SetProtections({.leases = &leases_, .mappings = &exports_});
    pool_ = std::make_shared<SlotPool>(&ledger_);
    for (int i = 0; i < kMostAtOnce; ++i) {
      auto slot = std::make_unique<VolumeSlot>();
      slot->charge = ledger_
                         .Reserve(0, kScan, "",
                                  {{.kind = model::NeedKind::kVolumeSlots,
                                    .bytes = ClientMemory::kGranule,
                                    .count = 1}},
                                  nullptr)
                         .value()[0];
      slot->volume = ClientMemory::Allocate(*device_, 4096).value();
      pool_->Add(std::move(slot));
    }
  }
  ~VerbsTest() override {
    socket_->Stop();
    pool_->Close();
    EXPECT_EQ(ledger_.UseOf(0).granted(), 0) << "memory of a volume was not given back";
  }

  /// Makes a new held volume; later ones are the same unless a test changes it.
  void Held(bool kept = true) {
    name_ = absl::StrCat("volumes/", ++count_);
    VolumeStatus status;
    status.name = name_;
    status.scan = kScan;
    status.shape[0] = status.shape[1] = status.shape[2] = 16;
    status.bytes = 4096;
    status.ttl_seconds = ttl_;
    status.session = session_.name;
    status.owner = owner_;
    store_.Add(status, pool_->TryTake(), 0);
    store_.Seal(status, kept);
  }

  // -- the calls, each run to its end as a client or the server runs it
  absl::Status Lease(const std::string& name) {
    return store_
        .AcquireLease(
            {.resource = name, .mode = LeaseMode::kShared, .session = "", .holder = "a viewer"})
        .status();
  }
  absl::Status Discard(const std::string& name) {
    const ClientVerb asked;
    return store_.Discard(name, Reason::kDiscarded, "discarded by a client", &asked).status();
  }
  absl::Status Commit(const std::string& name) {
    const ClientVerb asked;
    OCTAVO_ASSIGN_OR_RETURN(VolumeCommit commit, store_.BeginCommit(name, &asked));
    std::move(commit).Finish(storage::CommitOutcome{.path = "/somewhere"});
    return absl::OkStatus();
  }
  absl::Status Spill(const std::string& name) {
    const ClientVerb asked;
    OCTAVO_ASSIGN_OR_RETURN(VolumeMove move, store_.tiers().BeginSpill(name, &asked));
    (void)std::move(move).Finish(Spilled());
    return absl::OkStatus();
  }
  static VolumeBytes Spilled() {
    return {.slot = nullptr, .spilled = std::make_shared<const NoBytes>()};
  }
  absl::Status Export(const std::string& name) {
    std::string made;
    return exports_.Take(name, peer_, {.uid = ::getuid(), .pid = 1}, {}, nullptr, &made).status();
  }
  absl::Status Release(const std::string& name) {
    const ClientVerb asked;
    return store_.ring().Unmark(name, &asked).status();
  }
  absl::Status Hold(const std::string& name) { return store_.ring().Mark(name, 100).status(); }
  /// The loan lasts until Clear.
  absl::Status Borrow(const std::string& name) {
    OCTAVO_ASSIGN_OR_RETURN(VolumeHold loan, store_.Hold(name, HoldKind::kLoan, 100));
    loans_.push_back(std::move(loan));
    return absl::OkStatus();
  }
  // These calls take whatever volume is due, not a given one: the volume's final state shows
  // whether they took it.
  absl::Status Overwrite(const std::string& name) {
    (void)store_.ring().OverwriteOldest(kScan);
    return WhatBecame(name, "overwritten");
  }
  absl::Status Expire(const std::string& name) {
    (void)store_.expiry().Tick([](const std::string&) { return false; });
    return WhatBecame(name, "its time to live");
  }
  absl::Status Orphan(const std::string& name) {  // the policy DISCARD
    const auto due = store_.expiry().Tick(
        [this](const std::string& session) { return sessions_.Gone(session); });
    const ClientVerb asked{.detach_exports = true, .of_orphans = true};
    for (const VolumeStatus& volume : due.orphans) {
      const absl::Status status =
          store_.Discard(volume.name, Reason::kDiscarded, "its session has ended", &asked).status();
      if (InfoOf(status).reason == Reason::kLeased) store_.expiry().TellOrphanAgain(volume.name);
    }
    return WhatBecame(name, "its session has ended");
  }
  absl::Status WhatBecame(const std::string& name, const std::string& reason) {
    return absl::StartsWith(store_.Get(name)->reason, reason)
               ? absl::OkStatus()
               : absl::FailedPreconditionError("nothing was due");
  }

  /// Checks the invariants of a volume without a call in progress.
  void CheckWhatIsLeft(const std::string& name) {
    const VolumeState state = store_.Get(name)->state;
    if (InMemory(state)) return;
    ASSERT_TRUE(leases_.List(name).empty())
        << "a lease of " << name << ", which is " << Name(state);
    for (const ExportStatus& e : exports_.List(name))
      ASSERT_TRUE(e.detached) << "an export of " << name << ", which is " << Name(state);
  }
  void Clear() {
    loans_.clear();
    for (const auto& e : exports_.List()) (void)exports_.End(e.name);
    for (const auto& lease : leases_.List()) (void)leases_.Release(lease.token);
    for (const VolumeStatus& volume : store_.List({.in_memory = true}))
      (void)store_.Discard(volume.name, Reason::kDiscarded, "cleared");
  }

  using Verb = absl::Status (VerbsTest::*)(const std::string& name);
  /// Both threads apply their call to many volumes, one after the other, in the same order.
  struct Outcome {
    std::string name;
    absl::Status a, b;
  };
  std::vector<Outcome> DoBoth(Verb a, Verb b, const std::function<void()>& prepare, int at_once,
                              const testing::Handicap& handicap = {}) {
    std::vector<Outcome> all;
    for (int i = 0; i < at_once; ++i) {
      prepare();
      all.push_back({.name = name_});
    }
    racers_.Race(
        [&] {
          handicap.WaitFirst();
          for (Outcome& one : all) one.a = (this->*a)(one.name);
        },
        [&] {
          handicap.WaitSecond();
          for (Outcome& one : all) one.b = (this->*b)(one.name);
        });
    return all;
  }
  /// Expects that exactly one of the two calls succeeds, and that each of them sometimes wins.
  void RaceThem(Verb a, Verb b, const std::function<void()>& prepare,
                const std::set<std::string>& reasons = {}, int at_once = kMostAtOnce) {
    int won[2] = {0, 0};
    testing::Handicap handicap;
    for (int tries = 0; tries < (at_once == 1 ? kRounds : kTries); tries += at_once) {
      const int before[2] = {won[0], won[1]};
      for (Outcome& one : DoBoth(a, b, prepare, at_once, handicap)) {
        // The final error also names other changes to the volume.
        for (auto [status, verb] : {std::pair(&one.a, a), std::pair(&one.b, b)}) {
          if (verb == &VerbsTest::Overwrite) *status = WhatBecame(one.name, "overwritten");
          if (verb == &VerbsTest::Expire) *status = WhatBecame(one.name, "its time to live");
          if (verb == &VerbsTest::Orphan) *status = WhatBecame(one.name, "its session has ended");
        }
        ASSERT_FALSE(one.a.ok() && one.b.ok()) << "both succeeded with " << one.name;
        ASSERT_TRUE(one.a.ok() || one.b.ok())
            << "neither succeeded with " << one.name << ": " << one.a << "; " << one.b;
        ++won[one.a.ok() ? 0 : 1];
        const absl::Status& loser = one.a.ok() ? one.b : one.a;
        const ErrorInfo info = InfoOf(loser);
        if (!reasons.empty())
          ASSERT_TRUE(reasons.contains(std::string(Name(info.reason)))) << loser;
        if (info.reason == Reason::kLeased) {
          ASSERT_TRUE(absl::StrContains(loser.message(), "a viewer")) << loser;
          const auto holder = std::find(info.numbers.begin(), info.numbers.end(),
                                        std::pair<std::string, std::string>{"holder", "a viewer"});
          ASSERT_NE(holder, info.numbers.end()) << loser;
        }
        ASSERT_NO_FATAL_FAILURE(CheckWhatIsLeft(one.name));
      }
      handicap.Balance(won[0] - before[0], won[1] - before[1]);
      Clear();
    }
    std::cout << "won: " << won[0] << " and " << won[1] << "\n";
    EXPECT_GT(won[0], 0) << "they never raced";
    EXPECT_GT(won[1], 0) << "they never raced";
  }

  FakeClock clock_;
  octavo::testing::TempFolder folder_;
  const std::unique_ptr<Device> device_;
  Ledger ledger_{{int64_t{1} << 30}};
  ClientSessions sessions_{&clock_, {}, "testtest"};
  LeaseTable leases_{&clock_, 65'536, &sessions_};
  std::function<void(const VolumeStatus&)> on_change_;  // null: not called
  octavo::testing::VolumeCallback observer_{[this](const VolumeStatus& volume) {
    if (on_change_ != nullptr) on_change_(volume);
  }};
  VolumeStore store_{&ledger_, &clock_};
  ExportStore exports_{{.devices = {device_.get()},
                        .ledger = &ledger_,
                        .volumes = &store_,
                        .clock = &clock_,
                        .server_id = "testtest"}};
  std::unique_ptr<handoff::FdSocket> socket_;
  std::shared_ptr<SlotPool> pool_;
  const ExportPeer peer_{.local = true, .uid = ::getuid(), .client = "a program", .accept = {}};
  testing::Racers racers_;
  std::vector<VolumeHold> loans_;
  std::string name_;
  SessionStatus session_;
  security::Owner owner_;  // of the volumes that Held makes
  double ttl_ = 0;
  int count_ = 0;
};

TEST_F(VerbsTest, ALeaseAndTheEndOfTheVolume) {
  const auto prepare = [this] { Held(); };
  RaceThem(&VerbsTest::Lease, &VerbsTest::Discard, prepare, {"LEASED", "VOLUME_STATE"});
  RaceThem(&VerbsTest::Lease, &VerbsTest::Commit, prepare, {"LEASED", "VOLUME_STATE"});
}

TEST_F(VerbsTest, TheEndOfTheTimeToLive) {
  ttl_ = 5;
  const auto due = [this] {
    Held();
    clock_.Advance(6);
  };
  for (const Verb verb :
       {&VerbsTest::Lease, &VerbsTest::Commit, &VerbsTest::Discard, &VerbsTest::Hold}) {
    RaceThem(verb, &VerbsTest::Expire, due, {}, /*at_once=*/4);
  }
}

TEST_F(VerbsTest, ThePolicyForOrphans) {
  const auto opened = sessions_.Open("a microscope").value();
  session_ = opened.session;
  ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
  const auto prepare = [this] { Held(); };
  for (const Verb verb : {&VerbsTest::Lease, &VerbsTest::Commit, &VerbsTest::Discard})
    RaceThem(verb, &VerbsTest::Orphan, prepare, {}, /*at_once=*/4);
}

TEST_F(VerbsTest, AnExportAndWhatTakesTheMemory) {
  const auto prepare = [this] { Held(); };
  RaceThem(&VerbsTest::Export, &VerbsTest::Discard, prepare, {"EXPORTED", "VOLUME_GONE"});
  RaceThem(&VerbsTest::Export, &VerbsTest::Spill, prepare,
           {"EXPORTED", "EXPORT_SPILLED", "MOVING"});
  const auto marked = [this] {
    Held(/*kept=*/false);
    ASSERT_THAT(Hold(name_), IsOk());
  };
  RaceThem(&VerbsTest::Export, &VerbsTest::Release, marked, {"EXPORTED", "EXPORT_NOT_HELD"});
}

TEST_F(VerbsTest, TheRingAndWhoWantsTheVolume) {
  const auto prepare = [this] { Held(/*kept=*/false); };
  // One volume at a time, because the ring takes the oldest, whichever volume the other thread has
  // reached.
  for (const Verb verb :
       {&VerbsTest::Hold, &VerbsTest::Borrow, &VerbsTest::Commit, &VerbsTest::Discard})
    RaceThem(verb, &VerbsTest::Overwrite, prepare, {}, /*at_once=*/1);
}

// A volume returns to its device and is mapped there before its earlier move off the device was
// announced.
TEST_F(VerbsTest, WhatIsExportedAnewIsNotDetached) {
  for (const bool mapped_before : {false, true}) {
    Held();
    if (mapped_before) ASSERT_THAT(Export(name_), IsOk());
    on_change_ = [this](const VolumeStatus& volume) {
      if (volume.tier == Tier::kDevice) return;
      ASSERT_OK_AND_ASSIGN(VolumeMove back, store_.tiers().BeginRestore(name_));
      ASSERT_TRUE(
          std::move(back).Finish(VolumeBytes{.slot = pool_->TryTake(), .spilled = nullptr}));
      ASSERT_THAT(Export(name_), IsOk());
    };
    // By the server: for a client what is mapped is not moved.
    ASSERT_OK_AND_ASSIGN(VolumeMove move, store_.tiers().BeginSpill(name_));
    ASSERT_TRUE(std::move(move).Finish(Spilled()));
    on_change_ = nullptr;
    const auto exports = exports_.List(name_);
    ASSERT_EQ(exports.size(), mapped_before ? 2u : 1u);
    if (mapped_before) EXPECT_TRUE(exports[0].detached) << "the memory that it has left";
    EXPECT_FALSE(exports.back().detached);
    EXPECT_EQ(ledger_.UseOf(0).detached, mapped_before ? ClientMemory::kGranule : 0);
    EXPECT_THAT(Discard(name_),
                IsError(absl::StatusCode::kFailedPrecondition, "mapped by other processes"));
    Clear();
  }
}

// keep_last: a volume that is held in time leaves its place in the ring to the next one.
TEST_F(VerbsTest, TheLastOfTheRingAndWhoHoldsTheOldest) {
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::string> names;
    for (int i = 0; i < 4; ++i) {
      Held(/*kept=*/false);
      names.push_back(name_);
    }
    absl::Status held;
    racers_.Race([&] { held = Hold(names[0]); }, [&] { store_.ring().KeepNewest(kScan, 3); });
    ASSERT_EQ(store_.Get(names[0])->state,
              held.ok() ? VolumeState::kHeld : VolumeState::kDiscarded);
    for (size_t i = 1; i < names.size(); ++i)
      ASSERT_EQ(store_.Get(names[i])->state, VolumeState::kHeld) << i << ", " << held;
    Clear();
  }
}

TEST_F(VerbsTest, TwoThatEndTheVolume) {
  const auto prepare = [this] { Held(); };
  RaceThem(&VerbsTest::Discard, &VerbsTest::Discard, prepare, {"VOLUME_STATE"});
  RaceThem(&VerbsTest::Discard, &VerbsTest::Commit, prepare, {"VOLUME_STATE"});
  RaceThem(&VerbsTest::Commit, &VerbsTest::Commit, prepare, {"VOLUME_STATE"});
}

// These calls do not exclude each other; the final state must be right all the same.
TEST_F(VerbsTest, VerbsThatMayBothBeDoneLeaveNothingBehind) {
  ttl_ = 5;
  const std::vector<std::pair<Verb, Verb>> pairs = {
      {&VerbsTest::Export, &VerbsTest::Commit},   {&VerbsTest::Export, &VerbsTest::Expire},
      {&VerbsTest::Spill, &VerbsTest::Discard},   {&VerbsTest::Spill, &VerbsTest::Commit},
      {&VerbsTest::Lease, &VerbsTest::Overwrite}, {&VerbsTest::Lease, &VerbsTest::Spill}};
  for (const auto& [a, b] : pairs) {
    const auto prepare = [&, second = b] {
      Held(/*kept=*/second != &VerbsTest::Overwrite);
      clock_.Advance(second == &VerbsTest::Expire ? 6 : 0);
    };
    for (int tries = 0; tries < kTries; tries += 8) {
      for (const Outcome& one : DoBoth(a, b, prepare, 8))
        ASSERT_NO_FATAL_FAILURE(CheckWhatIsLeft(one.name));
      Clear();
    }
  }
}

// A granted lease belongs to a living session.
TEST_F(VerbsTest, ALeaseAndTheEndOfItsSession) {
  for (int round = 0; round < kRounds; ++round) {
    const auto opened = sessions_.Open("a viewer").value();
    Held();
    absl::Status leased;
    racers_.Race(
        [&] {
          leased = store_
                       .AcquireLease({.resource = name_,
                                      .mode = LeaseMode::kShared,
                                      .session = opened.session.name})
                       .status();
        },
        [&] {
          ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
          leases_.EndSession(opened.session.name);
        });
    ASSERT_TRUE(leases_.List(name_).empty()) << "round " << round;
    if (!leased.ok()) ASSERT_EQ(InfoOf(leased).reason, Reason::kNoSession);
    Clear();
  }
}

// A resumed session keeps its leases: the clean-up after its earlier end comes too late.
TEST_F(VerbsTest, TheLeasesOfASessionThatHasComeBackStay) {
  const auto opened = sessions_.Open("a viewer").value();
  Held();
  ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
  ASSERT_EQ(sessions_.Expire(), std::vector<std::string>{opened.session.name});
  ASSERT_THAT(sessions_.KeepAlive(opened.secret), IsOk());
  ASSERT_THAT(store_.AcquireLease(
                  {.resource = name_, .mode = LeaseMode::kShared, .session = opened.session.name}),
              IsOk());
  leases_.EndSession(opened.session.name);
  EXPECT_EQ(leases_.List(name_).size(), 1u);
  Clear();
}

// A client that resumes its session keeps the volumes that it finds.
TEST_F(VerbsTest, AnOrphanWhoseClientComesBack) {
  for (int round = 0; round < kRounds; ++round) {
    const auto opened = sessions_.Open("a microscope").value();
    session_ = opened.session;
    ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
    Held();
    bool found = false;
    racers_.Race(
        [&] {
          ASSERT_THAT(sessions_.KeepAlive(opened.secret), IsOk());
          store_.expiry().Adopt(opened.session.name);
          found = store_.Get(name_)->state == VolumeState::kHeld;
        },
        [&] { (void)Orphan(name_); });
    ASSERT_EQ(store_.Get(name_)->state == VolumeState::kHeld, found) << "round " << round;
    ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
    Clear();
  }
}

// The caller's own lease does not block the caller; another client's does. A token that does not
// belong to the volume is refused.
TEST_F(VerbsTest, OnesOwnLease) {
  const auto lease = [this](const std::string& holder) {
    return store_
        .AcquireLease(
            {.resource = name_, .mode = LeaseMode::kShared, .session = "", .holder = holder})
        .value();
  };
  const std::vector<std::function<absl::Status(const ClientVerb&)>> verbs = {
      [this](const ClientVerb& asked) {
        return store_.Discard(name_, Reason::kDiscarded, "", &asked).status();
      },
      [this](const ClientVerb& asked) { return store_.BeginCommit(name_, &asked).status(); },
      [this](const ClientVerb& asked) { return store_.tiers().BeginSpill(name_, &asked).status(); },
      [this](const ClientVerb& asked) { return store_.ring().Unmark(name_, &asked).status(); },
  };
  for (size_t i = 0; i < verbs.size(); ++i) {
    Held();
    const auto mine = lease("me"), theirs = lease("a viewer");
    const absl::Status refused = verbs[i]({.lease_token = mine.token});
    EXPECT_THAT(refused, IsError(absl::StatusCode::kAborted, "by a viewer")) << i;
    EXPECT_EQ(InfoOf(verbs[i]({.lease_token = "0123"})).reason, Reason::kLeaseLost) << i;
    EXPECT_EQ(store_.Get(name_)->state, VolumeState::kHeld);
    EXPECT_EQ(store_.Get(name_)->moving, Move::kNone);
    EXPECT_TRUE(store_.Get(name_)->kept);
    ASSERT_THAT(leases_.Release(theirs.token), IsOk());
    EXPECT_THAT(verbs[i]({}), IsError(absl::StatusCode::kAborted, "by me")) << i;
    EXPECT_THAT(verbs[i]({.lease_token = mine.token}), IsOk()) << i;
    Clear();
  }
}

// Only who may change a volume gets as far as its state and its leases; nothing has changed for
// others. What the server does for itself, and for orphans, asks nobody.
TEST_F(VerbsTest, OnesOwnVolumes) {
  owner_ = {.name = "ada", .project = "retina"};
  const security::Principal ada{.name = "ada", .proof = security::Proof::kToken};
  const security::Principal colleague{
      .name = "bob", .project = "retina", .proof = security::Proof::kToken};
  const security::Principal admin{.name = "eve", .role = security::Role::kAdmin};
  const security::Principal stranger{.name = "mallory", .proof = security::Proof::kToken};
  const std::vector<std::function<absl::Status(const ClientVerb*)>> verbs = {
      [this](const ClientVerb* asked) {
        return store_.Discard(name_, Reason::kDiscarded, "", asked).status();
      },
      [this](const ClientVerb* asked) { return store_.BeginCommit(name_, asked).status(); },
      [this](const ClientVerb* asked) { return store_.tiers().BeginSpill(name_, asked).status(); },
      [this](const ClientVerb* asked) {
        return store_.tiers().BeginRestore(name_, asked).status();
      },
      [this](const ClientVerb* asked) { return store_.ring().Mark(name_, 100, asked).status(); },
      [this](const ClientVerb* asked) { return store_.ring().Unmark(name_, asked).status(); },
      [this](const ClientVerb* asked) {
        return store_.ring().Unmark(name_, asked, /*endangers=*/false).status();
      },
  };
  for (size_t i = 0; i < verbs.size(); ++i) {
    for (const security::Principal& caller : {stranger, security::Principal{}}) {
      Held();
      const uint64_t revision = store_.Get(name_)->revision;
      const ClientVerb asked{.detach_exports = true, .caller = caller};
      const absl::Status refused = verbs[i](&asked);
      EXPECT_THAT(refused, IsError(absl::StatusCode::kPermissionDenied,
                                   absl::StrCat(name_, " belongs to ada (project retina)")))
          << i;
      EXPECT_EQ(InfoOf(refused).reason, Reason::kNotOwner) << i;
      EXPECT_EQ(store_.Get(name_)->revision, revision) << i;
      Clear();
    }
    for (const security::Principal& caller : {ada, colleague, admin}) {
      Held();
      const ClientVerb asked{.caller = caller};
      EXPECT_THAT(verbs[i](&asked), IsOk()) << i << caller.name;
      Clear();
    }
    Held();
    EXPECT_THAT(verbs[i](nullptr), IsOk()) << i;
    Clear();
  }
  // A volume that has left stays its owner's: a stranger learns of the right, not of the state.
  Held();
  ASSERT_THAT(store_.Discard(name_, Reason::kDiscarded, ""), IsOk());
  const ClientVerb asked{.caller = stranger};
  EXPECT_EQ(InfoOf(verbs[0](&asked)).reason, Reason::kNotOwner);
  EXPECT_EQ(store_.Get(name_)->owner, owner_);
  Clear();
}

// The owner discards while others ask for the same: theirs are refused for the right alone, and the
// owner's succeeds, every time.
TEST_F(VerbsTest, TheOwnerDiscardsWhileAnotherAsks) {
  owner_ = {.name = "ada"};
  const ClientVerb mine{.caller = {.name = "ada", .proof = security::Proof::kToken}};
  const ClientVerb theirs{.caller = {.name = "bob", .proof = security::Proof::kToken}};
  for (int round = 0; round < kRounds; ++round) {
    Held();
    absl::Status a, b;
    racers_.Race([&] { a = store_.Discard(name_, Reason::kDiscarded, "", &mine).status(); },
                 [&] { b = store_.Discard(name_, Reason::kDiscarded, "", &theirs).status(); });
    ASSERT_THAT(a, IsOk()) << "round " << round;
    ASSERT_EQ(InfoOf(b).reason, Reason::kNotOwner) << "round " << round << ": " << b;
    Clear();
  }
}

// An expired lease keeps no volume.
TEST_F(VerbsTest, ALeaseThatHasExpiredIsNone) {
  Held();
  ASSERT_THAT(store_.AcquireLease({.resource = name_,
                                   .mode = LeaseMode::kShared,
                                   .session = "",
                                   .holder = "a viewer",
                                   .seconds = 3}),
              IsOk());
  EXPECT_THAT(Discard(name_), IsError(absl::StatusCode::kAborted, "a viewer"));
  clock_.Advance(4);
  EXPECT_THAT(Discard(name_), IsOk());
  EXPECT_TRUE(leases_.List(name_).empty());
}

// All clients together get at most this many slots, however many of them map at once.
TEST_F(VerbsTest, TheSlotsThatMayBeMappedAtOnce) {
  for (int round = 0; round < kRounds; ++round) {
    Held();
    const std::string first = name_;
    Held();
    const auto take = [&](const std::string& volume) {
      std::string made;
      return exports_
          .Take(volume, peer_, {.uid = ::getuid(), .pid = 1}, {}, nullptr, &made, /*most_slots=*/1)
          .status();
    };
    absl::Status a, b;
    racers_.Race([&] { a = take(first); }, [&] { b = take(name_); });
    ASSERT_NE(a.ok(), b.ok()) << a << "; " << b;
    ASSERT_EQ(exports_.SlotsOf(kScan), 1);
    Clear();
  }
}

}  // namespace
}  // namespace octavo::engine
