// Replicated buffers: creation and destruction, permissions, and freed memory.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

#include "server/security/rights.h"
#include "tests/server/buffer/buffer_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::kBudget;
using testing::kMe;

using testing::BufferStoreTest;

TEST_P(BufferStoreTest, BadShapesTypesAndPlacesAreRefusedAndLeaveNothing) {
  const auto create = [&](Scalar scalar, uint64_t lanes, std::vector<uint64_t> shape,
                          std::vector<uint32_t> places = {}) {
    return store_->Create(
        {.scalar = scalar, .lanes = lanes, .shape = std::move(shape), .devices = std::move(places)},
        kMe);
  };
  EXPECT_REFUSED(create(Scalar::kF32, 1, {}), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(create(Scalar::kF32, 1, {1, 2, 3, 4}), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(create(Scalar::kF32, 1, {4, 0}), kInvalidArgument, "BAD_SHAPE");
  EXPECT_REFUSED(create(Scalar{}, 1, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(static_cast<Scalar>(99), 1, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kF32, 5, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kF32, ~uint64_t{0}, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kC64, 2, {4}), kInvalidArgument, "BAD_TYPE");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {(1 << 30) + 1}), kInvalidArgument, "TOO_MANY_ELEMENTS");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {1ull << 63, 1ull << 63, 4}), kInvalidArgument,
                 "TOO_MANY_ELEMENTS");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {4}, {devices()}), kInvalidArgument, "BAD_PLACEMENT");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {4}, {0, 0}), kInvalidArgument, "BAD_PLACEMENT");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {1 << 30}, {0}), kResourceExhausted, "QUOTA");
  EXPECT_REFUSED(create(Scalar::kU8, 1, {260 << 20}, {0}), kResourceExhausted, "EXCEEDS_BUDGET");
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {4}, .ttl_seconds = 0.5}, kMe),
                 kInvalidArgument, "BAD_FIELD");
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {4}, .is_private = true}, kMe),
                 kInvalidArgument, "BAD_FIELD");
  EXPECT_TRUE(store_->List(kMe).empty());
}

// Everybody reads a buffer that is not private; its owner changes it.
TEST_P(BufferStoreTest, ABufferIsItsOwners) {
  const auto caller = [](const std::string& name, const std::string& project = "") {
    return Caller{
        .client = "a client",
        .principal = {.name = name, .project = project, .proof = security::Proof::kToken}};
  };
  const Caller ada = caller("ada", "retina"), eve = caller("eve", "retina"), bob = caller("bob");
  BufferSpec spec{.scalar = Scalar::kU8, .shape = {4}};
  spec.request_id = "r";
  ASSERT_OK_AND_ASSIGN(const BufferStatus made, store_->Create(spec, ada));
  EXPECT_EQ(made.owner, (security::Owner{.name = "ada", .project = "retina"}));
  EXPECT_EQ(made.client, "a client");
  EXPECT_REFUSED(store_->Create(spec, bob), kAlreadyExists, "IDEMPOTENCY_MISMATCH");
  const auto refused = store_->Destroy(made.name, "", "", bob);
  EXPECT_REFUSED(refused, kPermissionDenied, "NOT_OWNER");
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr(absl::StrCat(made.name, " belongs to ada (project retina)")));
  EXPECT_REFUSED(store_->Change({.name = made.name, .set_labels = true}, bob), kPermissionDenied,
                 "NOT_OWNER");
  EXPECT_REFUSED(store_->OpenWrite({.name = made.name, .total_bytes = 4}, bob), kPermissionDenied,
                 "NOT_OWNER");
  EXPECT_REFUSED(store_->Sync(made.name, 0, {}, "", bob), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(
      store_->Apply({.input = made.name, .operations = {CopyOp{}}, .output = made.name}, bob),
      kPermissionDenied, "NOT_OWNER");
  const auto lease = [&](session::LeaseMode mode, const Caller& who) {
    absl::StatusOr<session::Lease> answer = absl::UnknownError("not told");
    (void)store_->AcquireLease({.resource = made.name,
                                .mode = mode,
                                .session = "",
                                .holder = "",
                                .owner = security::OwnerOf(who.principal),
                                .seconds = 10},
                               who, [&](auto told) { answer = std::move(told); });
    return answer;
  };
  EXPECT_REFUSED(lease(session::LeaseMode::kExclusive, bob), kPermissionDenied, "NOT_OWNER");
  ASSERT_OK_AND_ASSIGN(const session::Lease reading, lease(session::LeaseMode::kShared, bob));
  ASSERT_THAT(leases_.Release(reading.token), IsOk());
  EXPECT_EQ(store_->Get(made.name, bob)->revision, made.revision);
  ASSERT_OK_AND_ASSIGN(const BufferStatus copy,
                       store_->Apply({.input = made.name, .operations = {CopyOp{}}}, bob));
  EXPECT_EQ(copy.owner.name, "bob");
  EXPECT_THAT(store_->Change({.name = made.name, .set_labels = true}, eve), IsOk());
  EXPECT_THAT(store_->Destroy(made.name, "", "", ada), IsOk());
  EXPECT_THAT(store_->Destroy(copy.name, "", "", bob), IsOk());
}

TEST_P(BufferStoreTest, MemoryIsGrantedOnAllDevicesOrNone) {
  constexpr uint64_t kMost = 200 << 20;
  const BufferStatus first = Make(Scalar::kU8, {kMost}, 1, {devices() - 1});
  const int64_t before = ledger_->UseOf(0).free();
  // Another owner: the quota would allow the buffer, but the last device has no room.
  const Caller you{.client = "you"};
  std::vector<uint32_t> all(devices());
  std::iota(all.begin(), all.end(), 0);
  const auto refused =
      store_->Create({.scalar = Scalar::kU8, .shape = {60u << 20}, .devices = all}, you);
  EXPECT_REFUSED(refused, kResourceExhausted, "DEVICE_FULL");
  std::string holders;
  for (const auto& [key, value] : InfoOf(refused.status()).numbers)
    holders += key == "holders" ? value : "";
  EXPECT_NE(holders.find(first.name), std::string::npos) << "names the largest holder";
  EXPECT_EQ(ledger_->UseOf(0).free(), before);
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {110 << 20}, .devices = {0}}, kMe),
                 kResourceExhausted, "QUOTA");
  ASSERT_THAT(store_->Destroy(first.name, "", "", kMe), IsOk());
  ASSERT_THAT(store_->Drain(), IsOk());
  EXPECT_THAT(store_->Create({.scalar = Scalar::kU8, .shape = {60 << 20}, .devices = {0}}, you),
              IsOk());
}

TEST_P(BufferStoreTest, AnAllocationThatFailsGivesEverythingBack) {
  for (int allowed = 0; allowed < static_cast<int>(devices()); ++allowed) {
    for (auto& device : devices_) device->allocations_left = 1 << 30;
    devices_[static_cast<size_t>(allowed)]->allocations_left = 0;
    EXPECT_THAT(store_->Create({.scalar = Scalar::kF32, .shape = {1000}}, kMe),
                IsError(absl::StatusCode::kResourceExhausted, "none left"));
    ASSERT_THAT(store_->Drain(), IsOk());
    for (int d = 0; d < ledger_->devices(); ++d) EXPECT_EQ(ledger_->UseOf(d).free(), kBudget);
  }
  for (auto& device : devices_) device->allocations_left = 1 << 30;
  const BufferStatus buffer = Make(Scalar::kF32, {1000});
  // Both allocations fail in turn: scratch memory of an operation, and its output.
  for (int allowed = 0; allowed < 2; ++allowed) {
    devices_[0]->allocations_left = allowed;
    EXPECT_THAT(store_->Apply({.input = buffer.name,
                               .operations = {FftOp{}, ScaleOp{.part = math::Part::kPower}}},
                              kMe),
                IsError(absl::StatusCode::kResourceExhausted, "none left"));
  }
  devices_[0]->allocations_left = 1 << 30;
  EXPECT_EQ(store_->List(kMe).size(), 1u);
}

TEST_P(BufferStoreTest, LeasesOfClients) {
  const BufferStatus buffer = Make(Scalar::kF32, {10});
  const std::vector<float> values(10, 3);
  const Lease exclusive = leases_
                              .TryAcquire({.resource = buffer.name,
                                           .mode = LeaseMode::kExclusive,
                                           .holder = "you",
                                           .seconds = 10})
                              .value();
  EXPECT_EQ(store_->Get(buffer.name, kMe)->exclusive_leases, 1);
  EXPECT_REFUSED(Write(buffer.name, values), kAborted, "LEASED");
  EXPECT_REFUSED(Read<float>({.name = buffer.name}), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Sync(buffer.name, 0, {}, "", kMe), kAborted, "LEASED");
  EXPECT_REFUSED(store_->Apply({.input = buffer.name, .operations = {CopyOp{}}}, kMe), kAborted,
                 "LEASED");
  EXPECT_THAT(
      Write(buffer.name, values, {.lease_token = exclusive.token, .lease_fence = exclusive.fence}),
      IsOk());
  EXPECT_REFUSED(Write(buffer.name, values,
                       {.lease_token = exclusive.token, .lease_fence = exclusive.fence + 1}),
                 kFailedPrecondition, "LEASE_LOST");
  EXPECT_EQ(Read<float>({.name = buffer.name, .lease_token = exclusive.token}).value(), values);
  EXPECT_THAT(store_->Apply({.input = buffer.name,
                             .operations = {ScaleOp{.add = {1, 0}}},
                             .output = buffer.name,
                             .output_lease_token = exclusive.token},
                            kMe),
              IsOk());
  clock_.Advance(11);  // its lease expires
  EXPECT_REFUSED(Write(buffer.name, values, {.lease_token = exclusive.token}), kFailedPrecondition,
                 "LEASE_LOST");
  EXPECT_EQ(Read<float>({.name = buffer.name}).value(), std::vector<float>(10, 4));
  const Lease shared =
      leases_.TryAcquire({.resource = buffer.name, .mode = LeaseMode::kShared, .seconds = 10})
          .value();
  EXPECT_REFUSED(Write(buffer.name, values, {.lease_token = shared.token}), kFailedPrecondition,
                 "LEASE_MODE");
  EXPECT_THAT(Read<float>({.name = buffer.name}), IsOk());
}

TEST_P(BufferStoreTest, NamesOwnersRequestsAndTombstones) {
  const BufferSpec spec{
      .scalar = Scalar::kU8, .shape = {4}, .request_id = "one", .request_digest = "a"};
  const BufferStatus first = store_->Create(spec, kMe).value();
  EXPECT_EQ(store_->Create(spec, kMe)->name, first.name) << "a retry";
  BufferSpec other = spec;
  other.request_digest = "b";
  EXPECT_REFUSED(store_->Create(other, kMe), kAlreadyExists, "IDEMPOTENCY_MISMATCH");
  EXPECT_EQ(store_->List(kMe).size(), 1u);

  const Caller owner{.client = "owner", .key = "the key of the owner"};
  const BufferStatus mine =
      store_->Create({.scalar = Scalar::kU8, .shape = {4}, .is_private = true}, owner).value();
  // Everybody sees the holders of the memory.
  int64_t unnamed = 0;
  for (int d = 0; d < ledger_->devices(); ++d) {
    for (const auto& holder : ledger_->HoldersOf(d)) {
      EXPECT_NE(holder.name, mine.name);
      unnamed += holder.name == "a private buffer";
    }
  }
  EXPECT_EQ(unnamed, std::ssize(mine.replicas));
  EXPECT_REFUSED(store_->Get(mine.name, kMe), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(Write(mine.name, std::vector<uint8_t>(4)), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(Read<uint8_t>({.name = mine.name}), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(store_->Destroy(mine.name, "", "", kMe), kPermissionDenied, "NOT_OWNER");
  EXPECT_REFUSED(store_->Apply({.input = mine.name, .operations = {CopyOp{}}}, kMe),
                 kPermissionDenied, "NOT_OWNER");
  EXPECT_EQ(store_->List(kMe).size(), 1u);
  EXPECT_EQ(store_->List(owner).size(), 2u);

  ASSERT_OK_AND_ASSIGN(
      const BufferStatus changed,
      store_->Change(
          {.name = first.name, .etag = first.etag, .set_labels = true, .labels = {{"a", "b"}}},
          kMe));
  EXPECT_EQ(changed.labels.at("a"), "b");
  EXPECT_REFUSED(store_->Change({.name = first.name, .etag = first.etag, .set_labels = true}, kMe),
                 kAborted, "VERSION");
  EXPECT_REFUSED(store_->Destroy(first.name, first.etag, "", kMe), kAborted, "VERSION");
  EXPECT_THAT(store_->Destroy(first.name, changed.etag, "", kMe), IsOk());
  EXPECT_REFUSED(store_->Get(first.name, kMe), kNotFound, "NO_BUFFER");
  EXPECT_THAT(store_->Get(first.name, kMe),
              IsError(absl::StatusCode::kNotFound, "destroyed by a client"));
  clock_.Advance(601);
  store_->Housekeep();
  EXPECT_THAT(store_->Get(first.name, kMe), IsError(absl::StatusCode::kNotFound, "no buffer"));
  store_->BeginDrain();
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kU8, .shape = {4}}, kMe), kUnavailable,
                 "DRAINING");
  EXPECT_REFUSED(store_->Apply({.input = mine.name, .operations = {CopyOp{}}}, owner), kUnavailable,
                 "DRAINING");
}

TEST_P(BufferStoreTest, TimeToLiveEndsAfterAWarning) {
  std::vector<std::pair<ChangeKind, std::string>> told;
  Mutex mutex;
  const auto watch =
      store_->Watch(kMe, [&](ChangeKind kind, const auto& status, const std::string&) {
        MutexLock lock(mutex);
        told.emplace_back(kind, status->name);
      });
  const BufferStatus buffer =
      store_->Create({.scalar = Scalar::kF32, .shape = {4}, .ttl_seconds = 100}, kMe).value();
  clock_.Advance(30);
  ASSERT_THAT(Write(buffer.name, std::vector<float>(4)), IsOk());  // restarts the time
  clock_.Advance(60);
  store_->Housekeep();
  EXPECT_NEAR(store_->Get(buffer.name, kMe)->expires_seconds, 40, 1e-6);
  clock_.Advance(41);
  store_->Housekeep();
  EXPECT_THAT(store_->Get(buffer.name, kMe), IsError(absl::StatusCode::kNotFound, "time to live"));
  store_->FlushWatches();
  MutexLock lock(mutex);
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[0].first, ChangeKind::kCreated);
  EXPECT_EQ(told[1].first, ChangeKind::kChanged);
  EXPECT_EQ(told[2].first, ChangeKind::kExpiring);
  EXPECT_EQ(told[3].first, ChangeKind::kGone);
}

TEST_P(BufferStoreTest, ABufferThatIsProlongedAtTheWarningLivesOn) {
  const BufferStatus buffer =
      store_->Create({.scalar = Scalar::kU8, .shape = {4}, .ttl_seconds = 100}, kMe).value();
  bool prolonged = false;
  BufferStore* const store = store_.get();  // the fixture's pointer changes while watchers are told
  const auto watch = store->Watch(kMe, [&](ChangeKind kind, const auto& status, const auto&) {
    if (kind != ChangeKind::kExpiring) return;
    prolonged =
        store->Change({.name = status->name, .set_ttl = true, .ttl_seconds = 100}, kMe).ok();
  });
  clock_.Advance(60);
  store_->Housekeep();
  store_->FlushWatches();
  EXPECT_TRUE(prolonged);
  clock_.Advance(60);
  store_->Housekeep();
  EXPECT_THAT(store_->Get(buffer.name, kMe), IsOk());
}

// Another thread prolongs buffers at the moment when they end: one of both succeeds.
TEST_P(BufferStoreTest, ABufferThatIsProlongedInTheLastMomentLivesOn) {
  for (int i = 0; i < 200; ++i) {
    const BufferStatus buffer =
        store_->Create({.scalar = Scalar::kU8, .shape = {4}, .ttl_seconds = 100}, kMe).value();
    clock_.Advance(101);
    bool prolonged = false;
    std::jthread other([&] {
      prolonged =
          store_->Change({.name = buffer.name, .set_ttl = true, .ttl_seconds = 100}, kMe).ok();
    });
    store_->Housekeep();
    other.join();
    ASSERT_EQ(store_->Get(buffer.name, kMe).ok(), prolonged) << i;
    (void)store_->Destroy(buffer.name, "", "", kMe);
  }
}

// Watchers arrive while other threads change a buffer. Each first hears that the buffer exists,
// then of newer and newer states, and last of the newest.
TEST_P(BufferStoreTest, WatchersNeverHearOfAnOlderStateAfterANewerOne) {
  const BufferStatus buffer = Make(Scalar::kU8, {4});
  constexpr int kChanges = 400, kThreads = 2;
  struct Log {
    Mutex mutex;
    std::vector<std::pair<ChangeKind, uint64_t>> events ABSL_GUARDED_BY(mutex);
  };
  std::vector<std::shared_ptr<Log>> logs;
  std::vector<std::shared_ptr<void>> watches;
  {
    std::vector<std::jthread> changers;
    for (int t = 0; t < kThreads; ++t) {
      changers.emplace_back([&] {
        for (int i = 0; i < kChanges; ++i)
          EXPECT_THAT(store_->Change({.name = buffer.name, .set_labels = true}, kMe), IsOk());
      });
    }
    for (int i = 0; i < 50; ++i) {
      auto log = logs.emplace_back(std::make_shared<Log>());
      watches.push_back(
          store_->Watch(kMe, [log](ChangeKind kind, const auto& status, const std::string&) {
            MutexLock lock(log->mutex);
            log->events.emplace_back(kind, status->revision);
          }));
    }
  }
  store_->FlushWatches();
  const uint64_t newest = store_->Get(buffer.name, kMe)->revision;
  EXPECT_GE(newest, uint64_t{kChanges * kThreads});
  for (const auto& log : logs) {
    MutexLock lock(log->mutex);
    ASSERT_FALSE(log->events.empty());
    EXPECT_EQ(log->events.front().first, ChangeKind::kExists);
    for (size_t i = 1; i < log->events.size(); ++i)
      ASSERT_LE(log->events[i - 1].second, log->events[i].second);
    EXPECT_EQ(log->events.back().second, newest);
  }
}

TEST_P(BufferStoreTest, ARepeatedDestroySucceedsWhileTheBufferIsRemembered) {
  const BufferStatus buffer = Make(Scalar::kF32, {10});
  const std::string& name = buffer.name;
  ASSERT_THAT(store_->Destroy(name, buffer.etag, "", kMe), IsOk());
  EXPECT_THAT(store_->Destroy(name, buffer.etag, "", kMe), IsOk()) << "the answer may be lost";
  EXPECT_THAT(store_->Destroy(name, "", "0123456789abcdef0123456789abcdef", kMe), IsOk());
  EXPECT_REFUSED(store_->Get(name, kMe), kNotFound, "NO_BUFFER");
  EXPECT_REFUSED(store_->Destroy("buffers/never", "", "", kMe), kNotFound, "NO_BUFFER");
  clock_.Advance(601);
  store_->Housekeep();
  EXPECT_REFUSED(store_->Destroy(name, "", "", kMe), kNotFound, "NO_BUFFER");
}

TEST_P(BufferStoreTest, APrivateBufferIsWatchedByItsOwnerOnly) {
  const Caller owner{.client = "owner", .key = "the key of the owner"};
  Mutex mutex;
  std::vector<ChangeKind> owners, others;
  const auto log = [&](std::vector<ChangeKind>* told) {
    return [&mutex, told](ChangeKind kind, const auto&, const std::string&) {
      MutexLock lock(mutex);
      told->push_back(kind);
    };
  };
  const auto watch = store_->Watch(owner, log(&owners)), other = store_->Watch(kMe, log(&others));
  const BufferStatus mine =
      store_->Create({.scalar = Scalar::kU8, .shape = {4}, .is_private = true}, owner).value();
  ASSERT_THAT(store_->Destroy(mine.name, "", "", owner), IsOk());
  store_->FlushWatches();
  MutexLock lock(mutex);
  EXPECT_EQ(owners, (std::vector{ChangeKind::kCreated, ChangeKind::kGone}));
  EXPECT_TRUE(others.empty());
}

TEST_P(BufferStoreTest, ADeviceThatFailsTakesItsReplicasAlong) {
  const BufferStatus buffer = Make(Scalar::kF32, {10});
  devices_.back()->broken = true;
  const BufferStatus now = store_->Get(buffer.name, kMe).value();
  EXPECT_EQ(now.state, BufferState::kLost);
  const uint32_t last = devices() - 1;
  EXPECT_REFUSED(
      Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = last}),
      kDataLoss, "LOST");
  EXPECT_REFUSED(Write(buffer.name, std::vector<float>(10)), kDataLoss, "LOST");
  EXPECT_REFUSED(store_->Create({.scalar = Scalar::kF32, .shape = {10}}, kMe), kUnavailable,
                 "DEVICE_DOWN");
  if (devices() > 1)
    EXPECT_THAT(
        Read<float>({.name = buffer.name, .which = BufferReadSpec::Which::kReplica, .replica = 0}),
        IsOk());
  devices_.back()->broken = false;
}

INSTANTIATE_TEST_SUITE_P(Backends, BufferStoreTest,
                         ::testing::ValuesIn(octavo::testing::AvailableBackends()),
                         octavo::testing::BackendName);

}  // namespace
}  // namespace octavo::engine
