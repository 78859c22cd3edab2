// Each pair of verbs of a volume that exclude each other, done at the same moment thousands of times: never do both succeed, never neither,
// and whoever loses is told by whom or what.

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "gpu/shareable.h"
#include "server/engine/client_sessions.h"
#include "server/engine/export_store.h"
#include "server/engine/lease.h"
#include "server/engine/volume_states.h"
#include "server/engine/volume_store.h"
#include "tests/server/engine/racers.h"
#include "tests/support/fake_clock.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;

constexpr char kScan[] = "scans/a";
constexpr int kRounds = 2000;

class NoBytes final : public SpilledVolume {
 public:
  Tier tier() const override { return Tier::kHost; }
  int64_t bytes() const override { return 0; }
  absl::StatusOr<std::unique_ptr<storage::SpillCursor>> Open() const override { return absl::NotFoundError("no bytes"); }
  void Remove() const override {}
};

/// The stores that verbs of volumes meet in, as the engine puts them together.
class VerbsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ClientMemory::MakeShareable(true); }
  static void TearDownTestSuite() { ClientMemory::MakeShareable(false); }

  VerbsTest() : device_(std::move(OpenDevices("host")->devices[0])) {
    socket_ = handoff::FdSocket::Open({.path = folder_ / "handoff.sock", .group = ""}, &clock_).value();
    exports_.Start(socket_.get(), 10);
    leases_.SetGone([this](const std::string& session) { return sessions_.Gone(session); });
    store_.SetProtections({.leases = &leases_,
                           .mapped = [this] { return exports_.Mapped(); },
                           .unmapped = [this](const std::string& volume) { return exports_.CheckFree(volume); }});
    pool_ = std::make_shared<SlotPool>(&ledger_);
    for (int i = 0; i < 4; ++i) {
      auto slot = std::make_unique<VolumeSlot>();
      slot->charge = ledger_.Reserve(0, kScan, "", {{.what = "slot", .bytes = ClientMemory::kGranule, .count = 1}}, nullptr).value()[0];
      slot->volume = ClientMemory::Allocate(*device_, 4096).value();
      pool_->Add(std::move(slot));
    }
  }
  ~VerbsTest() override {
    socket_->Stop();
    pool_->Close();
    EXPECT_EQ(ledger_.UseOf(0).granted(), 0) << "memory of a volume was not given back";
  }

  /// A new held volume, like all that follow until it is changed.
  void Held(bool kept = true) {
    name_ = absl::StrCat("volumes/", ++count_);
    VolumeStatus status;
    status.name = name_;
    status.scan = kScan;
    status.shape[0] = status.shape[1] = status.shape[2] = 16;
    status.bytes = 4096;
    status.ttl_seconds = ttl_;
    status.session = session_.name;
    store_.Add(status, pool_->TryTake(), 0);
    store_.Seal(status, kept);
  }

  // -- the verbs, each as a client or the server does it, to its end
  absl::Status Lease() { return store_.AcquireLease({.resource = name_, .mode = LeaseMode::kShared, .session = "", .holder = "a viewer"}).status(); }
  absl::Status Discard() {
    const ClientVerb asked;
    return store_.Discard(name_, "discarded by a client", &asked).status();
  }
  absl::Status Commit() {
    const ClientVerb asked;
    OCTAVO_RETURN_IF_ERROR(store_.BeginCommit(name_, &asked).status());
    store_.EndCommit(name_, storage::CommitOutcome{.path = "/somewhere"});
    return absl::OkStatus();
  }
  absl::Status Spill() {
    const ClientVerb asked;
    OCTAVO_RETURN_IF_ERROR(store_.BeginSpill(name_, &asked).status());
    store_.EndSpill(name_, std::make_shared<const NoBytes>());
    return absl::OkStatus();
  }
  absl::Status Export() {
    std::string made;
    return exports_.Take(name_, peer_, {.uid = ::getuid(), .pid = 1}, nlohmann::json::object(), nullptr, &made).status();
  }
  absl::Status Release() {  // and what the ring does then
    const ClientVerb asked;
    OCTAVO_RETURN_IF_ERROR(store_.Unmark(name_, /*ring=*/true, &asked).status());
    return absl::OkStatus();
  }
  absl::Status Hold() { return store_.Keep(name_, 100).status(); }
  absl::Status Overwrite() { return store_.OverwriteOldest(kScan) ? absl::OkStatus() : absl::FailedPreconditionError("nothing to overwrite"); }
  absl::Status Expire() {
    const auto due = store_.Tick([](const std::string&) { return false; });
    return due.expired.empty() ? absl::FailedPreconditionError("nothing has expired") : absl::OkStatus();
  }
  absl::Status Orphan() {  // the policy DISCARD
    const auto due = store_.Tick([this](const std::string& session) { return sessions_.Gone(session); });
    absl::Status status = absl::FailedPreconditionError("no orphans");
    const ClientVerb asked{.detach_exports = true, .of_orphans = true};
    for (const VolumeStatus& volume : due.orphans) status = store_.Discard(volume.name, "its session has ended", &asked).status();
    return status;
  }

  /// What must be true of a volume whenever nothing is under way.
  void CheckWhatIsLeft() {
    const VolumeState state = store_.Get(name_)->state;
    if (InMemory(state)) return;
    ASSERT_TRUE(leases_.List(name_).empty()) << "a lease of " << name_ << ", which is " << Name(state);
    for (const ExportStatus& e : exports_.List(name_)) ASSERT_TRUE(e.limbo) << "an export of " << name_ << ", which is " << Name(state);
  }
  void Clear() {
    for (const auto& e : exports_.List()) (void)exports_.End(e.name);
    for (const auto& lease : leases_.List()) (void)leases_.Release(lease.token);
    for (const VolumeStatus& volume : store_.List({.in_memory = true})) (void)store_.Discard(volume.name, "cleared");
  }

  using Verb = std::function<absl::Status()>;
  /// Both at once, `kRounds` times; one of them first by a random while, so that they meet at all their steps.
  void RaceThem(const Verb& a, const Verb& b, const std::function<void()>& prepare, const std::set<std::string>& reasons) {
    std::mt19937 random(octavo::testing::FreshSeed());
    std::map<std::string, int> lost;
    int won[2] = {0, 0};
    for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
      prepare();
      absl::Status of_a, of_b;
      const unsigned wait = random() % 64, first = random() % 2;
      const auto later = [&](unsigned mine) {
        for (std::atomic<unsigned> spin{0}; mine == first && spin < wait; ++spin) {
        }
      };
      racers_.Race(
          [&] {
            later(0);
            of_a = a();
          },
          [&] {
            later(1);
            of_b = b();
          });
      ASSERT_FALSE(of_a.ok() && of_b.ok()) << "both succeeded, in round " << round;
      ASSERT_TRUE(of_a.ok() || of_b.ok()) << "neither succeeded, in round " << round << ": " << of_a << "; " << of_b;
      ++won[of_a.ok() ? 0 : 1];
      const absl::Status& loser = of_a.ok() ? of_b : of_a;
      const ErrorInfo info = InfoOf(loser);
      ++lost[info.reason];
      if (!reasons.empty()) ASSERT_TRUE(reasons.contains(info.reason)) << loser;
      if (info.reason == "LEASED") {
        ASSERT_TRUE(absl::StrContains(loser.message(), "a viewer")) << loser;
        const auto holder = std::find(info.numbers.begin(), info.numbers.end(), std::pair<std::string, std::string>{"holder", "a viewer"});
        ASSERT_NE(holder, info.numbers.end()) << loser;
      }
      CheckWhatIsLeft();
      Clear();
      if (HasFatalFailure()) return;
    }
    RecordProperty("first", won[0]);
    RecordProperty("second", won[1]);
  }

  FakeClock clock_;
  octavo::testing::TempFolder folder_;
  const std::unique_ptr<Device> device_;
  Ledger ledger_{{int64_t{1} << 30}};
  LeaseTable leases_{&clock_};
  ClientSessions sessions_{&clock_, {}, "testtest"};
  VolumeStore store_{&ledger_, &clock_, [this](const VolumeStatus& volume) {
                       if (!InMemory(volume.state) || volume.tier != Tier::kDevice) exports_.Gone(volume.name);
                     }};
  ExportStore exports_{
      {.devices = {device_.get()}, .ledger = &ledger_, .volumes = &store_, .clock = &clock_, .server_id = "testtest", .draining = nullptr}};
  std::unique_ptr<handoff::FdSocket> socket_;
  std::shared_ptr<SlotPool> pool_;
  const ExportPeer peer_{.local = true, .uid = ::getuid(), .client = "a program", .accept = {}};
  testing::Racers racers_;
  std::string name_;
  SessionStatus session_;
  double ttl_ = 0;
  int count_ = 0;
};

TEST_F(VerbsTest, ALeaseAndTheEndOfTheVolume) {
  const auto prepare = [this] { Held(); };
  RaceThem([this] { return Lease(); }, [this] { return Discard(); }, prepare, {"LEASED", "VOLUME_STATE"});
  RaceThem([this] { return Lease(); }, [this] { return Commit(); }, prepare, {"LEASED", "VOLUME_STATE"});
}

TEST_F(VerbsTest, ALeaseAndTheEndOfItsTimeToLive) {
  ttl_ = 5;
  const auto due = [this] {
    Held();
    clock_.Advance(6);
  };
  RaceThem([this] { return Lease(); }, [this] { return Expire(); }, due, {});
  RaceThem([this] { return Commit(); }, [this] { return Expire(); }, due, {});
  RaceThem([this] { return Discard(); }, [this] { return Expire(); }, due, {});
  RaceThem([this] { return Hold(); }, [this] { return Expire(); }, due, {});
}

TEST_F(VerbsTest, ALeaseAndThePolicyForOrphans) {
  const auto opened = sessions_.Open("a microscope").value();
  session_ = opened.session;
  ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
  const auto prepare = [this] { Held(); };
  RaceThem([this] { return Lease(); }, [this] { return Orphan(); }, prepare, {});
  RaceThem([this] { return Commit(); }, [this] { return Orphan(); }, prepare, {});
  RaceThem([this] { return Discard(); }, [this] { return Orphan(); }, prepare, {});
}

TEST_F(VerbsTest, AnExportAndWhatTakesTheMemory) {
  const auto prepare = [this] { Held(); };
  RaceThem([this] { return Export(); }, [this] { return Discard(); }, prepare, {"EXPORTED", "VOLUME_GONE"});
  RaceThem([this] { return Export(); }, [this] { return Spill(); }, prepare, {"EXPORTED", "EXPORT_SPILLED", "MOVING"});
  const auto marked = [this] {
    Held(/*kept=*/false);
    ASSERT_THAT(Hold(), IsOk());
  };
  RaceThem([this] { return Export(); }, [this] { return Release(); }, marked, {"EXPORTED", "EXPORT_NOT_HELD"});
}

TEST_F(VerbsTest, TheRingAndWhoWantsTheVolume) {
  const auto prepare = [this] { Held(/*kept=*/false); };
  RaceThem([this] { return Hold(); }, [this] { return Overwrite(); }, prepare, {});
  RaceThem([this] { return Commit(); }, [this] { return Overwrite(); }, prepare, {});
  RaceThem([this] { return Discard(); }, [this] { return Overwrite(); }, prepare, {});
  RaceThem([this] { return store_.Lend(name_, 100); }, [this] { return Overwrite(); }, prepare, {});
}

TEST_F(VerbsTest, TwoThatEndTheVolume) {
  const auto prepare = [this] { Held(); };
  RaceThem([this] { return Discard(); }, [this] { return Discard(); }, prepare, {"VOLUME_STATE"});
  RaceThem([this] { return Discard(); }, [this] { return Commit(); }, prepare, {"VOLUME_STATE"});
  RaceThem([this] { return Commit(); }, [this] { return Commit(); }, prepare, {"VOLUME_STATE"});
}

// These do not exclude each other; what is left must be right all the same.
TEST_F(VerbsTest, VerbsThatMayBothBeDoneLeaveNothingBehind) {
  ttl_ = 5;
  const std::vector<std::pair<Verb, Verb>> pairs = {
      {[this] { return Export(); }, [this] { return Commit(); }},   {[this] { return Export(); }, [this] { return Expire(); }},
      {[this] { return Spill(); }, [this] { return Discard(); }},   {[this] { return Spill(); }, [this] { return Commit(); }},
      {[this] { return Lease(); }, [this] { return Overwrite(); }}, {[this] { return Lease(); }, [this] { return Spill(); }}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (int round = 0; round < kRounds; ++round) {
      Held(/*kept=*/i != 4);
      clock_.Advance(i == 1 ? 6 : 0);
      absl::Status a, b;
      racers_.Race([&] { a = pairs[i].first(); }, [&] { b = pairs[i].second(); });
      ASSERT_TRUE(a.ok() || b.ok()) << i << ": " << a << "; " << b;
      ASSERT_NO_FATAL_FAILURE(CheckWhatIsLeft()) << i;
      Clear();
    }
  }
}

// A lease that is granted is one of a session that lives.
TEST_F(VerbsTest, ALeaseAndTheEndOfItsSession) {
  for (int round = 0; round < kRounds; ++round) {
    const auto opened = sessions_.Open("a viewer").value();
    Held();
    absl::Status leased;
    racers_.Race([&] { leased = store_.AcquireLease({.resource = name_, .mode = LeaseMode::kShared, .session = opened.session.name}).status(); },
                 [&] {
                   ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
                   leases_.EndSession(opened.session.name);
                 });
    ASSERT_TRUE(leases_.List(name_).empty()) << "round " << round;
    if (!leased.ok()) ASSERT_EQ(InfoOf(leased).reason, "NO_SESSION");
    Clear();
  }
}

// Nor is one taken from a session that has come back: who ends it for its first end comes too late.
TEST_F(VerbsTest, TheLeasesOfASessionThatHasComeBackStay) {
  const auto opened = sessions_.Open("a viewer").value();
  Held();
  ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
  ASSERT_EQ(sessions_.Expire(), std::vector<std::string>{opened.session.name});
  ASSERT_THAT(sessions_.KeepAlive(opened.secret), IsOk());
  ASSERT_THAT(store_.AcquireLease({.resource = name_, .mode = LeaseMode::kShared, .session = opened.session.name}), IsOk());
  leases_.EndSession(opened.session.name);
  EXPECT_EQ(leases_.List(name_).size(), 1u);
  Clear();
}

// What a client that has come back finds is not taken from it any more.
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
          store_.Adopt(opened.session.name);
          found = store_.Get(name_)->state == VolumeState::kHeld;
        },
        [&] { (void)Orphan(); });
    ASSERT_EQ(store_.Get(name_)->state == VolumeState::kHeld, found) << "round " << round;
    ASSERT_THAT(sessions_.Close(opened.secret), IsOk());
    Clear();
  }
}

// The caller's own lease is not in its way, another's is; a token that is none of the volume is refused.
TEST_F(VerbsTest, OnesOwnLease) {
  const auto lease = [this](const std::string& holder) {
    return store_.AcquireLease({.resource = name_, .mode = LeaseMode::kShared, .session = "", .holder = holder}).value();
  };
  const std::vector<std::function<absl::Status(const ClientVerb&)>> verbs = {
      [this](const ClientVerb& asked) { return store_.Discard(name_, "", &asked).status(); },
      [this](const ClientVerb& asked) { return store_.BeginCommit(name_, &asked).status(); },
      [this](const ClientVerb& asked) { return store_.BeginSpill(name_, &asked).status(); },
      [this](const ClientVerb& asked) { return store_.Unmark(name_, /*ring=*/true, &asked).status(); },
  };
  for (size_t i = 0; i < verbs.size(); ++i) {
    Held();
    const auto mine = lease("me"), theirs = lease("a viewer");
    const absl::Status refused = verbs[i]({.lease_token = mine.token});
    EXPECT_THAT(refused, IsError(absl::StatusCode::kAborted, "by a viewer")) << i;
    EXPECT_EQ(InfoOf(verbs[i]({.lease_token = "0123"})).reason, "LEASE_LOST") << i;
    EXPECT_EQ(store_.Get(name_)->state, VolumeState::kHeld);
    EXPECT_EQ(store_.Get(name_)->moving, "");
    EXPECT_TRUE(store_.Get(name_)->kept);
    ASSERT_THAT(leases_.Release(theirs.token), IsOk());
    EXPECT_THAT(verbs[i]({}), IsError(absl::StatusCode::kAborted, "by me")) << i;
    EXPECT_THAT(verbs[i]({.lease_token = mine.token}), IsOk()) << i;
    store_.EndCommit(name_, absl::CancelledError(""));
    store_.EndSpill(name_, absl::CancelledError(""));
    Clear();
  }
}

// A lease whose time is over keeps nothing.
TEST_F(VerbsTest, ALeaseThatHasExpiredIsNone) {
  Held();
  ASSERT_THAT(store_.AcquireLease({.resource = name_, .mode = LeaseMode::kShared, .session = "", .holder = "a viewer", .seconds = 3}), IsOk());
  EXPECT_THAT(Discard(), IsError(absl::StatusCode::kAborted, "a viewer"));
  clock_.Advance(4);
  EXPECT_THAT(Discard(), IsOk());
  EXPECT_TRUE(leases_.List(name_).empty());
}

// All clients together get so many slots, however many take at once.
TEST_F(VerbsTest, TheSlotsThatMayBeMappedAtOnce) {
  for (int round = 0; round < kRounds; ++round) {
    Held();
    const std::string first = name_;
    Held();
    const auto take = [&](const std::string& volume) {
      std::string made;
      return exports_.Take(volume, peer_, {.uid = ::getuid(), .pid = 1}, nlohmann::json::object(), nullptr, &made, /*most_slots=*/1).status();
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
