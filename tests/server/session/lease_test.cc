#include "server/session/lease.h"

#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/seed.h"
#include "tests/support/status_matchers.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using enum LeaseMode;

class LeaseTest : public ::testing::Test {
 protected:
  absl::StatusOr<Lease> Try(LeaseMode mode, const std::string& session = "", double seconds = 0) {
    return table_.TryAcquire({.resource = "buffers/a",
                              .mode = mode,
                              .session = session,
                              .holder = "tester",
                              .seconds = seconds});
  }
  /// Waits in the queue. The answer is stored in answers_[who].
  uint64_t Wait(const std::string& who, LeaseMode mode, double wait_seconds,
                const std::string& session = "") {
    return table_.Acquire({.resource = "buffers/a",
                           .mode = mode,
                           .session = session,
                           .holder = who,
                           .wait_seconds = wait_seconds},
                          [this, who](absl::StatusOr<Lease> answer) {
                            order_.push_back(who);
                            EXPECT_TRUE(answers_.emplace(who, std::move(answer)).second)
                                << who << " is told twice";
                          });
  }

  FakeClock clock_;
  LeaseTable table_{&clock_};
  std::map<std::string, absl::StatusOr<Lease>> answers_;
  std::vector<std::string> order_;
};

TEST_F(LeaseTest, SharedOnesGoTogetherAnExclusiveOneGoesAlone) {
  ASSERT_OK_AND_ASSIGN(const Lease a, Try(kShared));
  ASSERT_OK_AND_ASSIGN(const Lease b, Try(kShared));
  EXPECT_NE(a.token, b.token);
  EXPECT_EQ(a.token.size(), 32u);
  EXPECT_LT(a.fence, b.fence);
  const auto refused = Try(kExclusive);
  ASSERT_THAT(refused,
              IsError(absl::StatusCode::kAborted, "buffers/a is leased (SHARED) by tester"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kLeased);
  EXPECT_THAT(table_.Release(a.token), IsOk());
  EXPECT_THAT(Try(kExclusive), IsError(absl::StatusCode::kAborted, "SHARED"));
  EXPECT_THAT(table_.Release(b.token), IsOk());
  ASSERT_OK_AND_ASSIGN(const Lease alone, Try(kExclusive));
  EXPECT_THAT(Try(kShared), IsError(absl::StatusCode::kAborted, "EXCLUSIVE"));
  EXPECT_THAT(table_.TryAcquire({.resource = "buffers/b", .mode = kExclusive}), IsOk())
      << "another buffer";
  EXPECT_THAT(table_.Release(alone.token), IsOk());
  EXPECT_THAT(table_.Release(alone.token), IsError(absl::StatusCode::kFailedPrecondition, "lost"));
}

TEST_F(LeaseTest, ExpiryFreesAndTheStaleTokenIsRefused) {
  ASSERT_OK_AND_ASSIGN(const Lease old, Try(kExclusive, "", 5));
  clock_.Advance(4);
  EXPECT_THAT(table_.Check("buffers/a", old.token, old.fence, kExclusive), IsOk());
  EXPECT_THAT(table_.Renew(old.token, 5), IsOk());
  clock_.Advance(4.5);
  EXPECT_THAT(table_.Check("buffers/a", old.token, old.fence, kExclusive), IsOk()) << "renewed";
  clock_.Advance(1);
  ASSERT_OK_AND_ASSIGN(const Lease now, Try(kExclusive));
  EXPECT_GT(now.fence, old.fence);
  for (const auto& stale :
       {table_.Check("buffers/a", old.token, old.fence, kExclusive), table_.Renew(old.token, 5)}) {
    EXPECT_EQ(InfoOf(stale.status()).reason, Reason::kLeaseLost);
  }
  EXPECT_EQ(InfoOf(table_.Check("buffers/a", now.token, old.fence, kExclusive).status()).reason,
            Reason::kLeaseLost)
      << "an earlier fencing number";
  EXPECT_EQ(InfoOf(table_.Check("buffers/b", now.token, 0, kExclusive).status()).reason,
            Reason::kLeaseLost)
      << "of something else";
  EXPECT_THAT(table_.Check("buffers/a", now.token, 0, kShared), IsOk()) << "who may write may read";
  EXPECT_EQ(table_.CountAll().expired, 1);
}

TEST_F(LeaseTest, ARenewalGivesNoLeaseWithoutASessionForEver) {
  ASSERT_OK_AND_ASSIGN(const Lease alone, Try(kShared, "", 5));
  const auto refused = table_.Renew(alone.token, 0);
  ASSERT_THAT(refused, IsError(absl::StatusCode::kInvalidArgument, "ttl: is 0"));
  EXPECT_EQ(InfoOf(refused.status()).field, "ttl");
  clock_.Advance(4);
  EXPECT_THAT(table_.Renew(alone.token, 2), IsOk()) << "the refusal changed nothing";
  clock_.Advance(3);
  EXPECT_EQ(InfoOf(table_.Renew(alone.token, 0).status()).reason, Reason::kLeaseLost);
  // With a session it lives as long as that.
  ASSERT_OK_AND_ASSIGN(const Lease of_session, Try(kShared, "sessions/a", 5));
  ASSERT_OK_AND_ASSIGN(const Lease renewed, table_.Renew(of_session.token, 0));
  EXPECT_EQ(renewed.expires_ns, 0);
  clock_.Advance(1000);
  EXPECT_TRUE(table_.Leased("buffers/a"));
  table_.EndSession("sessions/a");
  EXPECT_FALSE(table_.Leased("buffers/a"));
}

TEST_F(LeaseTest, ASharedTokenDoesNotWrite) {
  ASSERT_OK_AND_ASSIGN(const Lease shared, Try(kShared));
  EXPECT_EQ(InfoOf(table_.Check("buffers/a", shared.token, 0, kExclusive).status()).reason,
            Reason::kLeaseMode);
}

TEST_F(LeaseTest, FirstComeFirstServedSoThatAWriterDoesNotStarve) {
  ASSERT_OK_AND_ASSIGN(const Lease reader, Try(kShared));
  Wait("writer", kExclusive, 10);
  Wait("reader 2", kShared, 10);
  Wait("reader 3", kShared, 10);
  EXPECT_THAT(Try(kShared), IsError(absl::StatusCode::kAborted, "3 wait")) << "nobody overtakes";
  EXPECT_TRUE(answers_.empty());
  EXPECT_THAT(table_.Release(reader.token), IsOk());
  EXPECT_EQ(order_, (std::vector<std::string>{"writer"}));
  EXPECT_THAT(table_.Release(answers_.at("writer")->token), IsOk());
  EXPECT_EQ(order_, (std::vector<std::string>{"writer", "reader 2", "reader 3"})) << "both at once";
  EXPECT_EQ(table_.CountOf("buffers/a").shared, 2);
  EXPECT_EQ(table_.CountAll().waits, 3);
}

TEST_F(LeaseTest, AWaitIsBounded) {
  ASSERT_OK_AND_ASSIGN(const Lease held, Try(kExclusive));
  Wait("a", kExclusive, 3);
  Wait("b", kShared, 8);
  clock_.Advance(2.9);
  table_.Expire();
  EXPECT_TRUE(answers_.empty());
  clock_.Advance(0.2);
  table_.Expire();
  ASSERT_EQ(answers_.count("a"), 1u);
  EXPECT_THAT(answers_.at("a"), IsError(absl::StatusCode::kDeadlineExceeded, "EXCLUSIVE"));
  EXPECT_EQ(InfoOf(answers_.at("a").status()).reason, Reason::kLeased);
  EXPECT_THAT(table_.Release(held.token), IsOk());
  EXPECT_THAT(answers_.at("b"), IsOk());
  EXPECT_THAT(table_.TryAcquire({.resource = "buffers/a", .mode = kShared, .wait_seconds = 301}),
              IsError(absl::StatusCode::kInvalidArgument, "wait: is 301"));
}

TEST_F(LeaseTest, OneThatGivesUpLetsThoseBehindHimThrough) {
  ASSERT_OK_AND_ASSIGN(const Lease reader, Try(kShared));
  const uint64_t writer = Wait("writer", kExclusive, 100);
  Wait("impatient", kExclusive, 1);
  Wait("reader 2", kShared, 100);
  table_.Withdraw(writer);
  EXPECT_THAT(answers_.at("writer"), IsError(absl::StatusCode::kCancelled, "given up"));
  EXPECT_EQ(answers_.count("reader 2"), 0u);
  clock_.Advance(2);
  table_.Expire();
  EXPECT_THAT(answers_.at("impatient"), IsError(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_THAT(answers_.at("reader 2"), IsOk());
  table_.Withdraw(writer);  // again: no effect
}

// The places of waiters that were answered otherwise are forgotten.
TEST_F(LeaseTest, WithdrawFindsTheWaiterAmongManyResources) {
  constexpr int kResources = 200;
  std::vector<uint64_t> places;
  std::vector<int> given_up(kResources, 0);
  for (int i = 0; i < kResources; ++i) {
    const std::string resource = absl::StrCat("buffers/", i);
    ASSERT_OK_AND_ASSIGN(const Lease held, table_.TryAcquire({.resource = resource,
                                                              .mode = kExclusive,
                                                              .session = "",
                                                              .holder = "tester",
                                                              .seconds = 100}));
    places.push_back(table_.Acquire({.resource = resource,
                                     .mode = kShared,
                                     .session = "",
                                     .holder = "waiter",
                                     .seconds = 100,
                                     .wait_seconds = 100},
                                    [&given_up, i](const absl::StatusOr<Lease>& answer) {
                                      given_up[static_cast<size_t>(i)] +=
                                          absl::IsCancelled(answer.status()) ? 1 : 100;
                                    }));
    if (i % 2 == 0) ASSERT_THAT(table_.Release(held.token), IsOk());  // the waiter has it
  }
  table_.Forget("buffers/1");
  for (const uint64_t place : places) table_.Withdraw(place);
  table_.Withdraw(0);
  table_.Withdraw(1'000'000);
  for (int i = 0; i < kResources; ++i)
    EXPECT_EQ(given_up[static_cast<size_t>(i)], i % 2 == 0 || i == 1 ? 100 : 1) << i;
  EXPECT_EQ(table_.CountAll().now.waiting, 0);
}

TEST_F(LeaseTest, EndOfTheSessionEndsItsLeasesAndWaits) {
  ASSERT_OK_AND_ASSIGN(const Lease dead, Try(kExclusive, "sessions/dead"));
  Wait("dead too", kExclusive, 100, "sessions/dead");
  Wait("alive", kExclusive, 100, "sessions/alive");
  table_.EndSession("sessions/dead");
  EXPECT_THAT(answers_.at("dead too"), IsError(absl::StatusCode::kCancelled, "sessions/dead"));
  ASSERT_THAT(answers_.at("alive"), IsOk());
  EXPECT_EQ(InfoOf(table_.Check("buffers/a", dead.token, 0, kShared).status()).reason,
            Reason::kLeaseLost);
  table_.EndSession("sessions/alive");
  EXPECT_TRUE(table_.List().empty());
}

TEST_F(LeaseTest, AResourceThatGoesTakesItsLeasesAlong) {
  ASSERT_OK_AND_ASSIGN(const Lease held, Try(kExclusive));
  Wait("waiter", kShared, 100);
  table_.Forget("buffers/a");
  EXPECT_EQ(InfoOf(answers_.at("waiter").status()).reason, Reason::kNoBuffer);
  EXPECT_THAT(table_.Release(held.token), IsError(absl::StatusCode::kFailedPrecondition, ""));
  EXPECT_EQ(table_.CountAll().now.exclusive, 0);
}

TEST_F(LeaseTest, VolumesAreSealedAndKnowSharedLeasesOnly) {
  EXPECT_THAT(table_.TryAcquire({.resource = "volumes/v", .mode = kShared}), IsOk());
  const auto refused = table_.TryAcquire({.resource = "volumes/v", .mode = kExclusive});
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kSealed);
}

TEST_F(LeaseTest, OperationsExcludeEachOtherAndTakeTheCallersLease) {
  LeaseTable::Told told;
  {
    ASSERT_OK_AND_ASSIGN(const auto guard,
                         table_.Enter("buffers/a", kExclusive, "", 0, "WriteBuffer", &told));
    EXPECT_THAT(Try(kShared), IsError(absl::StatusCode::kAborted, "WriteBuffer"));
    EXPECT_THAT(table_.Enter("buffers/a", kShared, "", 0, "ReadBuffer", &told),
                IsError(absl::StatusCode::kAborted, "WriteBuffer"));
  }
  ASSERT_OK_AND_ASSIGN(const Lease mine, Try(kExclusive));
  EXPECT_THAT(table_.Enter("buffers/a", kExclusive, "", 0, "WriteBuffer", &told),
              IsError(absl::StatusCode::kAborted, "tester"));
  {
    ASSERT_OK_AND_ASSIGN(auto guard, table_.Enter("buffers/a", kExclusive, mine.token, mine.fence,
                                                  "WriteBuffer", &told));
    EXPECT_EQ(guard.lease().fence, mine.fence);
  }
  EXPECT_THAT(table_.Check("buffers/a", mine.token, mine.fence, kExclusive), IsOk())
      << "the guard leaves the caller's lease";
}

// Random programs from several threads: there are never two writers, nor a writer beside a reader,
// and every waiter gets one answer.
TEST_F(LeaseTest, RandomProgramsExclude) {
  constexpr int kThreads = 4, kSteps = 10000, kResources = 3;
  struct Inside {
    std::atomic<int> readers{0}, writers{0};
  };
  std::vector<Inside> inside(kResources);
  std::atomic<int64_t> asked{0}, told{0}, granted{0};
  std::atomic<bool> wrong{false};
  std::mutex left_mutex;
  std::vector<std::string> left;  // tokens not released
  const uint32_t seed = testing::FreshSeed();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      for (int step = 0; step < kSteps; ++step) {
        const auto which = static_cast<size_t>(random() % kResources);
        const LeaseMode mode = random() % 3 == 0 ? kExclusive : kShared;
        const bool leaves = random() % 8 == 0;
        auto& in = inside[which];
        ++asked;
        table_.Acquire({.resource = absl::StrCat("buffers/", which),
                        .mode = mode,
                        .wait_seconds = random() % 2 == 0 ? 0 : 1.0},
                       [&, mode, leaves](absl::StatusOr<Lease> lease) {
                         ++told;
                         if (!lease.ok()) return;
                         ++granted;
                         const int readers = mode == kShared ? ++in.readers : in.readers.load();
                         const int writers = mode == kExclusive ? ++in.writers : in.writers.load();
                         if (writers > 1 || (writers > 0 && readers > 0)) wrong = true;
                         --(mode == kShared ? in.readers : in.writers);
                         if (!leaves) {
                           (void)table_.Release(lease->token);
                         } else {
                           std::lock_guard lock(left_mutex);
                           left.push_back(lease->token);
                         }
                       });
        if (random() % 16 == 0) clock_.Advance(0.3);
        if (random() % 16 == 0) table_.Expire();
        if (random() % 32 != 0) continue;
        std::vector<std::string> some;
        {
          std::lock_guard lock(left_mutex);
          some.swap(left);
        }
        for (const auto& token : some) EXPECT_THAT(table_.Release(token), IsOk());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Lease& lease : table_.List()) (void)table_.Release(lease.token);
  clock_.Advance(10);
  table_.Expire();
  for (const Lease& lease : table_.List()) (void)table_.Release(lease.token);
  EXPECT_EQ(asked, told);
  EXPECT_GT(granted, kSteps / 4);
  EXPECT_FALSE(wrong);
  EXPECT_TRUE(table_.List().empty());
}

// The index by session agrees with the rows, whatever happens.
TEST_F(LeaseTest, PagesAreInTheOrderOfTheFences) {
  std::vector<uint64_t> fences;
  std::vector<std::string> tokens;
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_AND_ASSIGN(const Lease lease,
                         table_.TryAcquire({.resource = "buffers/" + std::to_string(i * 7 % 5),
                                            .seconds = i % 4 == 0 ? 1.0 : 100.0}));
    fences.push_back(lease.fence);
    tokens.push_back(lease.token);
  }
  const auto pages = [&] {
    std::vector<uint64_t> seen;
    for (uint64_t after = 0;;) {
      const std::vector<Lease> page = table_.ListAfter(after, 3);
      for (const Lease& lease : page) seen.push_back(lease.fence);
      if (page.size() < 3) return seen;
      after = seen.back();
    }
  };
  EXPECT_EQ(pages(), fences);
  clock_.Advance(2);  // one of four has expired, and nobody has handled it yet
  ASSERT_THAT(table_.Release(tokens[5]), IsOk());
  std::vector<uint64_t> left;
  for (size_t i = 0; i < fences.size(); ++i)
    if (i % 4 != 0 && i != 5) left.push_back(fences[i]);
  EXPECT_EQ(pages(), left);
  table_.Expire();
  EXPECT_EQ(pages(), left);
  for (int i = 0; i < 5; ++i) table_.Forget("buffers/" + std::to_string(i));
  EXPECT_TRUE(pages().empty());
}

TEST_F(LeaseTest, TheLeasesOfASessionAreCountedAndEndWithIt) {
  std::mt19937 random(octavo::testing::FreshSeed());
  std::vector<std::string> tokens;
  std::vector<uint64_t> places;
  const auto session = [&] { return "sessions/" + std::to_string(random() % 3); };
  for (int i = 0; i < 4000; ++i) {
    const LeaseRequest request{.resource = "buffers/" + std::to_string(random() % 5),
                               .mode = random() % 3 == 0 ? kExclusive : kShared,
                               .session = random() % 4 == 0 ? "" : session(),
                               .seconds = static_cast<double>(1 + random() % 20),
                               .wait_seconds = static_cast<double>(random() % 8)};
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        places.push_back(table_.Acquire(request, [&](const absl::StatusOr<Lease>& lease) {
          if (lease.ok()) tokens.push_back(lease->token);
        }));
        break;
      case 3:
        if (!tokens.empty()) (void)table_.Release(tokens[random() % tokens.size()]);
        break;
      case 4:
        if (!places.empty()) table_.Withdraw(places[random() % places.size()]);
        break;
      case 5: clock_.Advance(0.5); break;
      case 6: table_.EndSession(session()); break;
      default:
        if (random() % 4 == 0) table_.Forget(request.resource);
    }
    std::map<std::string, int64_t> held;
    for (const Lease& lease : table_.List()) ++held[lease.session];
    for (const char* name : {"sessions/0", "sessions/1", "sessions/2"})
      ASSERT_EQ(table_.CountOfSession(name), held[name]) << name;
  }
  for (const char* name : {"sessions/0", "sessions/1", "sessions/2"}) table_.EndSession(name);
  for (const Lease& lease : table_.List()) EXPECT_EQ(lease.session, "");
}

// A token alone is not enough: the lease is its owner's.
TEST_F(LeaseTest, ALeaseIsItsOwners) {
  ASSERT_OK_AND_ASSIGN(
      const Lease lease,
      table_.TryAcquire(
          {.resource = "buffers/a", .mode = kExclusive, .owner = {.name = "ada"}, .seconds = 60}));
  EXPECT_EQ(table_.List()[0].owner.name, "ada");
  const security::Principal ada{.name = "ada", .proof = security::Proof::kToken};
  const security::Principal bob{.name = "bob", .proof = security::Proof::kToken};
  const absl::Status refused = table_.Release(lease.token, &bob);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kPermissionDenied,
                               "the lease of buffers/a, fence 1 belongs to ada"));
  EXPECT_EQ(InfoOf(refused).reason, Reason::kNotOwner);
  EXPECT_EQ(InfoOf(table_.Renew(lease.token, 3600, &bob).status()).reason, Reason::kNotOwner);
  EXPECT_EQ(table_.List()[0].expires_ns, lease.expires_ns);
  EXPECT_THAT(table_.Renew(lease.token, 3600, &ada), IsOk());
  EXPECT_THAT(table_.Release(lease.token, &ada), IsOk());
}

TEST_F(LeaseTest, ALeaseIsFoundByItsFence) {
  ASSERT_OK_AND_ASSIGN(const Lease lease, Try(kShared, "", 60));
  EXPECT_EQ(table_.OfFence(lease.fence)->token, lease.token);
  EXPECT_EQ(InfoOf(table_.OfFence(lease.fence + 1).status()).reason, Reason::kLeaseLost);
  EXPECT_EQ(InfoOf(table_.OfFence(0).status()).reason, Reason::kLeaseLost);
  EXPECT_EQ(table_.OfToken(lease.token)->resource, lease.resource);
  EXPECT_EQ(InfoOf(table_.OfToken("").status()).reason, Reason::kLeaseLost);
  LeaseTable::Told told;
  ASSERT_OK_AND_ASSIGN(const LeaseTable::Guard guard,
                       table_.Enter("buffers/b", kExclusive, "", 0, "WriteBuffer", &told));
  const absl::Status busy = table_.OfFence(guard.lease().fence).status();
  EXPECT_THAT(busy, IsError(absl::StatusCode::kFailedPrecondition, "a running call (WriteBuffer)"));
  EXPECT_EQ(InfoOf(busy).reason, Reason::kLeased);
  clock_.Advance(61);
  EXPECT_EQ(InfoOf(table_.OfFence(lease.fence).status()).reason, Reason::kLeaseLost);
}

TEST(LeaseTable, APrincipalHasHalfOfThePlacesWithItsWaits) {
  FakeClock clock;
  LeaseTable table(&clock, 8);
  const security::Owner ada{.name = "ada", .role = security::Role::kOperator};
  const security::Owner bob{.name = "bob", .role = security::Role::kOperator};
  const security::Owner root{.name = "root", .role = security::Role::kAdmin};
  int granted = 0, refused = 0;
  const auto request = [](const security::Owner& owner, const std::string& resource) {
    return LeaseRequest{.resource = resource,
                        .mode = kExclusive,
                        .owner = owner,
                        .seconds = 100,
                        .wait_seconds = 50};
  };
  const auto count = [&](const absl::StatusOr<Lease>& lease) {
    ++(lease.ok() ? granted : refused);
  };
  ASSERT_OK_AND_ASSIGN(const Lease bobs, table.TryAcquire(request(bob, "buffers/0")));
  for (const char* const resource : {"buffers/0", "buffers/1", "buffers/2"})
    (void)table.Acquire(request(ada, resource), count);
  const uint64_t place = table.Acquire(request(ada, "buffers/0"), count);
  EXPECT_EQ(granted, 2) << "and two wait";
  const absl::Status full = table.TryAcquire(request(ada, "buffers/3")).status();
  EXPECT_THAT(full, IsError(absl::StatusCode::kResourceExhausted,
                            "ada has 4 leases and waits for one; allowed to one principal is half "
                            "of lease.most = 8; release some"));
  EXPECT_EQ(InfoOf(full).reason, Reason::kLeases);
  EXPECT_EQ(table.Acquire(request(ada, "buffers/3"), count), 0u);
  EXPECT_EQ(refused, 1);
  EXPECT_THAT(table.TryAcquire({.resource = "buffers/4"}), IsOk()) << "that of a call";
  // Whoever waited keeps the place for the lease; a refusal and an end give places back.
  EXPECT_THAT(table.Release(bobs.token), IsOk());
  EXPECT_EQ(granted, 3);
  EXPECT_FALSE(table.TryAcquire(request(ada, "buffers/3")).ok());
  table.Withdraw(place);
  EXPECT_THAT(table.TryAcquire(request(ada, "buffers/2")),
              IsError(absl::StatusCode::kAborted, "leased"));
  EXPECT_THAT(table.TryAcquire(request(ada, "buffers/3")), IsOk());
  EXPECT_THAT(table.TryAcquire(request(ada, "buffers/5")),
              IsError(absl::StatusCode::kResourceExhausted, "ada has 4"));
  for (const char* const resource : {"buffers/6", "buffers/7", "buffers/8"})
    EXPECT_THAT(table.TryAcquire(request(root, resource)), IsOk());
  EXPECT_THAT(table.TryAcquire(request(root, "buffers/9")),
              IsError(absl::StatusCode::kResourceExhausted, "there are 8 leases"));
  clock.Advance(101);
  table.Expire();
  EXPECT_THAT(table.TryAcquire(request(ada, "buffers/5")), IsOk());
}

}  // namespace
}  // namespace octavo::engine
