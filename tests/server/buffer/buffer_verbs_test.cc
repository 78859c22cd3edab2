// Calls on buffers that exclude each other, made at the same moment many times, and calls whose
// lease ends while they run.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <thread>

#include "server/buffer/buffer_errors.h"
#include "tests/server/buffer/buffer_fixture.h"
#include "tests/support/racers.h"
#include "tests/support/rooms.h"

namespace octavo::engine::testing {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

constexpr int kRounds = 500;

class BufferVerbsTest : public BufferStoreTest {
 protected:
  absl::StatusOr<Lease> AcquireLease(const std::string& name, LeaseMode mode, double seconds = 0,
                                     double wait = 0) {
    std::optional<absl::StatusOr<Lease>> answer;
    (void)store_->AcquireLease({.resource = name,
                                .mode = mode,
                                .session = "",
                                .holder = "a client",
                                .seconds = seconds,
                                .wait_seconds = wait},
                               kMe,
                               [&](absl::StatusOr<Lease> lease) { answer = std::move(lease); });
    return answer.has_value() ? *std::move(answer) : absl::UnavailableError("waits");
  }
  void NeverBoth(const std::function<absl::Status()>& a, const std::function<absl::Status()>& b,
                 const std::function<void()>& prepare, const std::function<void()>& clear) {
    Handicap handicap;
    int won[2] = {0, 0};
    for (int round = 0; round < kRounds; ++round) {
      prepare();
      absl::Status of_a, of_b;
      racers_.Race(
          [&] {
            handicap.WaitFirst();
            of_a = a();
          },
          [&] {
            handicap.WaitSecond();
            of_b = b();
          });
      handicap.Balance(of_a.ok(), of_b.ok());
      ++won[of_a.ok() ? 0 : 1];
      ASSERT_FALSE(of_a.ok() && of_b.ok()) << "both succeeded, in round " << round;
      ASSERT_TRUE(of_a.ok() || of_b.ok()) << of_a << "; " << of_b;
      const absl::Status& loser = of_a.ok() ? of_b : of_a;
      const std::string reason = Reason(loser);
      ASSERT_TRUE(reason == "LEASED" || reason == "NO_BUFFER" || reason == "LEASE_LOST" ||
                  reason == "EXPORTED")
          << loser;
      clear();
    }
    std::cout << "won: " << won[0] << " and " << won[1] << "\n";
    EXPECT_GT(won[0], 0) << "they never raced";
    EXPECT_GT(won[1], 0) << "they never raced";
  }
  Racers racers_;
};

TEST_P(BufferVerbsTest, ALeaseAndTheEndOfTheBuffer) {
  for (const LeaseMode mode : {LeaseMode::kShared, LeaseMode::kExclusive}) {
    std::string name;
    NeverBoth([&] { return AcquireLease(name, mode).status(); },
              [&] { return store_->Destroy(name, "", "", kMe); },
              [&] { name = Make(Scalar::kU8, {16}, 1, {0}).name; },
              [&] {
                for (const Lease& lease : leases_.List()) {
                  ASSERT_THAT(store_->Get(name, kMe), IsOk()) << "a lease of a buffer that is gone";
                  ASSERT_THAT(leases_.Release(lease.token), IsOk());
                }
                (void)store_->Destroy(name, "", "", kMe);
              });
  }
}

TEST_P(BufferVerbsTest, ALeaseAndTheEndOfItsTimeToLive) {
  std::string name;
  NeverBoth([&] { return AcquireLease(name, LeaseMode::kShared).status(); },
            [&]() -> absl::Status {
              store_->Housekeep();
              return store_->Get(name, kMe).ok() ? Precondition(Reason::kLeased, "it lives on")
                                                 : absl::OkStatus();
            },
            [&] {
              for (const Lease& lease : leases_.List()) (void)leases_.Release(lease.token);
              name =
                  store_
                      ->Create(
                          {.scalar = Scalar::kU8, .shape = {16}, .devices = {0}, .ttl_seconds = 2},
                          kMe)
                      ->name;
              clock_.Advance(3);
            },
            [&] {
              for (const Lease& lease : leases_.List())
                ASSERT_THAT(leases_.Release(lease.token), IsOk());
              store_->Housekeep();
            });
}

TEST_P(BufferVerbsTest, OneWriterAtATime) {
  std::string name;
  std::unique_ptr<BufferWriter> writers[2];
  const auto open = [&](int i) {
    return [&, i]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(writers[i],
                              store_->OpenWrite({.name = name, .total_bytes = 16}, kMe));
      return absl::OkStatus();
    };
  };
  const auto prepare = [&] { name = Make(Scalar::kU8, {16}, 1, {0}).name; };
  const auto clear = [&] {
    for (auto& writer : writers) writer = nullptr;
    for (const Lease& lease : leases_.List()) (void)leases_.Release(lease.token);
    ASSERT_THAT(store_->Destroy(name, "", "", kMe), IsOk());
  };
  NeverBoth(open(0), open(1), prepare, clear);
  NeverBoth(
      open(0), [&] { return AcquireLease(name, LeaseMode::kExclusive).status(); }, prepare, clear);
}

// A verb that reads has a lease of its own while it is enqueued. That refuses nobody a lease.
TEST_P(BufferVerbsTest, AReadThatIsBeingEnqueuedRefusesNoLease) {
  const std::string name = Make(Scalar::kU8, {16}, 1, {0}).name;
  std::atomic<int> reads = 0;
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) reads += store_->OpenRead({.name = name}, kMe).ok() ? 1 : 0;
  });
  for (int round = 0; round < 20 * kRounds || reads < kRounds; ++round) {
    const auto lease = AcquireLease(name, LeaseMode::kExclusive);
    ASSERT_THAT(lease, IsOk()) << "round " << round;
    ASSERT_THAT(leases_.Release(lease->token), IsOk());
    if (round % 16 == 0) std::this_thread::yield();
  }
}

// A lease ends while its writer is slow; meanwhile another client gets a lease.
TEST_P(BufferVerbsTest, AWriterWhoseLeaseHasEndedWritesNothing) {
  const std::string name = Make(Scalar::kU8, {16}, 1, {0}).name;
  ASSERT_OK_AND_ASSIGN(const Lease late, AcquireLease(name, LeaseMode::kExclusive, 5));
  ASSERT_OK_AND_ASSIGN(
      auto writer,
      store_->OpenWrite({.name = name, .total_bytes = 16, .lease_token = late.token}, kMe));
  const std::string ones(16, '\1');
  ASSERT_THAT(writer->Chunk({{ones.data(), ones.size()}}), IsOk());
  clock_.Advance(6);
  ASSERT_OK_AND_ASSIGN(const Lease now, AcquireLease(name, LeaseMode::kExclusive));
  const auto finished = writer->Finish();
  EXPECT_EQ(Reason(finished.status()), "LEASE_LOST") << finished.status();
  writer = nullptr;
  ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> bytes,
                       Read<uint8_t>({.name = name, .lease_token = now.token}));
  EXPECT_EQ(bytes, std::vector<uint8_t>(16, 0));
  EXPECT_THAT(store_->Destroy(name, "", now.token, kMe), IsOk());
}

// Two clients share a lease, and both write a change of the same version.
TEST_P(BufferVerbsTest, AWriteOfAVersionThatIsNoMore) {
  for (const bool by_operation : {false, true}) {
    for (const bool all : {false, true}) {
      const std::string name = Make(Scalar::kU8, {16}).name;
      ASSERT_OK_AND_ASSIGN(const Lease lease, AcquireLease(name, LeaseMode::kExclusive));
      const uint64_t version = store_->Get(name, kMe)->replicas[0].version;
      const BufferWriteSpec spec{.name = name,
                                 .all = all,
                                 .total_bytes = 16,
                                 .lease_token = lease.token,
                                 .if_version = version};
      ASSERT_GT(spec.if_version, 0u);
      ASSERT_OK_AND_ASSIGN(auto writer, store_->OpenWrite(spec, kMe));
      const std::string ones(16, '\1'), twos(16, '\2');
      ASSERT_THAT(writer->Chunk({{ones.data(), ones.size()}}), IsOk());
      if (by_operation) {
        ASSERT_THAT(store_->Apply({.input = name,
                                   .operations = {FlipOp{}},
                                   .output = name,
                                   .input_lease_token = lease.token},
                                  kMe),
                    IsOk());
      } else {
        BufferWriteSpec first = spec;
        first.all = true;
        ASSERT_OK_AND_ASSIGN(auto faster, store_->OpenWrite(first, kMe));
        ASSERT_THAT(faster->Chunk({{twos.data(), twos.size()}}), IsOk());
        ASSERT_THAT(faster->Finish(), IsOk());
      }
      const auto finished = writer->Finish();
      EXPECT_THAT(finished, IsError(absl::StatusCode::kAborted, "has version "));
      EXPECT_EQ(Reason(finished.status()), "VERSION");
      writer = nullptr;
      ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> bytes,
                           Read<uint8_t>({.name = name, .lease_token = lease.token}));
      EXPECT_EQ(bytes, std::vector<uint8_t>(16, by_operation ? 0 : 2));
      EXPECT_THAT(store_->Destroy(name, "", lease.token, kMe), IsOk());
    }
  }
}

// The writer's lease has ended, and the server moves the replica to other memory while the first
// bytes arrive.
TEST_P(BufferVerbsTest, AWriterWhoseReplicaMoves) {
  auto made = MakeMovable({1024});
  const std::string& name = made.first;
  ExportStore::Overdue& movable = made.second;
  const std::string ones(4096, '\1');
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_OK_AND_ASSIGN(const Lease late, AcquireLease(name, LeaseMode::kExclusive, 5));
    ASSERT_OK_AND_ASSIGN(
        auto writer,
        store_->OpenWrite({.name = name, .total_bytes = 4096, .lease_token = late.token}, kMe));
    clock_.Advance(6);
    absl::Status taken, moved;
    racers_.Race(
        [&] {
          taken = writer->Chunk({{ones.data(), ones.size()}});
        },
        [&] { moved = store_->Relocate(movable); });
    ASSERT_THAT(taken, IsOk());
    ASSERT_THAT(moved, IsOk());
    ++movable.charge;
    ASSERT_EQ(Reason(writer->Finish().status()), "LEASE_LOST");
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> values, Read<float>({.name = name}));
  EXPECT_EQ(values, std::vector<float>(1024, 0));
}

// A callback may call the store: the store makes no callbacks under its locks.
TEST_P(BufferVerbsTest, NobodyIsCalledBackUnderALock) {
  const std::string other = Make(Scalar::kU8, {16}, 1, {0}).name;
  std::vector<std::jthread> asking;
  int told = 0;
  // While this callback waits, another thread makes every kind of call.
  const auto ask = [&](const std::string& who) {
    ++told;
    auto answered = std::make_shared<std::promise<void>>();
    auto answer = answered->get_future();
    asking.emplace_back([this, &other, answered] {
      (void)store_->Get(other, kMe);
      (void)store_->Sync(other, 0, {}, "", kMe);
      answered->set_value();
    });
    EXPECT_EQ(answer.wait_for(std::chrono::seconds(60)), std::future_status::ready) << who;
  };
  const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> calls = {
      {"Get",
       [&](const std::string& name) {
         (void)store_->Get(name, kMe);
         (void)leases_.CountAll();
       }},
      {"List",
       [&](const std::string&) {
         (void)store_->List(kMe);
         (void)leases_.CountAll();
       }},
      {"Sync", [&](const std::string& name) { (void)store_->Sync(name, 0, {}, "", kMe); }},
      {"OpenRead", [&](const std::string& name) { (void)store_->OpenRead({.name = name}, kMe); }},
      {"OpenWrite",
       [&](const std::string& name) {
         (void)store_->OpenWrite({.name = name, .total_bytes = 16}, kMe);
       }},
      {"Apply",
       [&](const std::string& name) {
         (void)store_->Apply({.input = name, .operations = {FlipOp{}}, .output = name}, kMe);
       }},
      {"Destroy", [&](const std::string& name) { (void)store_->Destroy(name, "", "", kMe); }},
  };
  for (const auto& [call, act] : calls) {
    const std::string name = Make(Scalar::kU8, {16}, 1, {0}).name;
    ASSERT_OK_AND_ASSIGN(const Lease first, AcquireLease(name, LeaseMode::kExclusive, 5));
    told = 0;
    (void)store_->AcquireLease({.resource = name,
                                .mode = LeaseMode::kExclusive,
                                .session = "",
                                .holder = "a client",
                                .wait_seconds = 100},
                               kMe, [&, who = call](const absl::StatusOr<Lease>&) { ask(who); });
    clock_.Advance(6);  // the waiter is next
    act(name);
    EXPECT_EQ(told, 1) << call;
    asking.clear();
    for (const Lease& lease : leases_.List()) (void)leases_.Release(lease.token);
  }
  // A buffer is destroyed: its waiters and its watchers.
  const std::string name = Make(Scalar::kU8, {16}, 1, {0}).name;
  ASSERT_OK_AND_ASSIGN(const Lease mine, AcquireLease(name, LeaseMode::kExclusive));
  (void)store_->AcquireLease({.resource = name,
                              .mode = LeaseMode::kExclusive,
                              .session = "",
                              .holder = "a client",
                              .wait_seconds = 100},
                             kMe, [&](const absl::StatusOr<Lease>&) { ask("who waits"); });
  const auto watching = store_->Watch(kMe, [&](ChangeKind kind, const auto&, const std::string&) {
    if (kind == ChangeKind::kGone) ask("who watches");
  });
  told = 0;
  EXPECT_THAT(store_->Destroy(name, "", mine.token, kMe), IsOk());
  store_->FlushWatches();
  EXPECT_EQ(told, 2);
}

// Two writers with one lease: one destroys or writes the buffer after the other has finished.
TEST_P(BufferVerbsTest, ABufferThatIsDestroyedUnderItsWriter) {
  const std::string name = Make(Scalar::kU8, {16}, 1, {0}).name;
  ASSERT_OK_AND_ASSIGN(const Lease lease, AcquireLease(name, LeaseMode::kExclusive));
  ASSERT_OK_AND_ASSIGN(
      auto writer,
      store_->OpenWrite({.name = name, .total_bytes = 16, .lease_token = lease.token}, kMe));
  const std::string ones(16, '\1');
  ASSERT_THAT(writer->Chunk({{ones.data(), ones.size()}}), IsOk());
  ASSERT_THAT(store_->Destroy(name, "", lease.token, kMe), IsOk());
  const auto finished = writer->Finish();
  EXPECT_FALSE(finished.ok());
}

// A waiter for a lease learns that the buffer is gone, whichever call comes first.
TEST_P(BufferVerbsTest, AWaitEndsWithTheBuffer) {
  for (int round = 0; round < kRounds; ++round) {
    const std::string name = Make(Scalar::kU8, {16}, 1, {0}).name;
    std::atomic<int> told{0};
    absl::Status answer, destroyed;
    const std::function<void()> wait = [&] {
      (void)store_->AcquireLease({.resource = name,
                                  .mode = LeaseMode::kExclusive,
                                  .session = "",
                                  .holder = "a client",
                                  .wait_seconds = 100},
                                 kMe, [&](const absl::StatusOr<Lease>& lease) {
                                   answer = lease.status();
                                   ++told;
                                 });
    };
    racers_.Race(wait, [&] { destroyed = store_->Destroy(name, "", "", kMe); });
    ASSERT_EQ(told, 1) << "round " << round << ", destroyed: " << destroyed;
    ASSERT_NE(answer.ok(), destroyed.ok()) << answer << "; " << destroyed;
    if (!answer.ok()) ASSERT_EQ(Reason(answer), "NO_BUFFER") << answer;
    for (const Lease& lease : leases_.List()) ASSERT_THAT(leases_.Release(lease.token), IsOk());
    (void)store_->Destroy(name, "", "", kMe);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, BufferVerbsTest, ::testing::Values("host"));

}  // namespace
}  // namespace octavo::engine::testing
