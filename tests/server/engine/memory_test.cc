// The promises about device memory, seen through the engine: admission, retention, clients that
// disconnect, leases.

#include <unistd.h>

#include "gpu/device/exportable_memory.h"
#include "server/buffer/buffer_store.h"
#include "server/exports/export_store.h"
#include "server/handoff/fd_socket.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;
using testing::MemoryTest;

TEST_F(MemoryTest, PlanAndSubmitGiveTheSameReport) {
  const auto compare = [&](const ScanSpec& spec) {
    ASSERT_OK_AND_ASSIGN(const AdmissionReport planned, engine_->scans().Plan(spec, nullptr));
    AdmissionReport answered;
    const auto scan = engine_->scans().Submit(spec, &answered);
    EXPECT_EQ(scan.ok(), planned.admitted);
    EXPECT_EQ(answered.admitted, planned.admitted);
    EXPECT_EQ(answered.wanted_bytes, planned.wanted_bytes);
    EXPECT_EQ(answered.free_bytes, planned.free_bytes);
    EXPECT_EQ(answered.advice, planned.advice);
    EXPECT_EQ(answered.seconds_to_memory_full, planned.seconds_to_memory_full);
    EXPECT_EQ(answered.seconds_to_spill_full, planned.seconds_to_spill_full);
    ASSERT_EQ(answered.holders.size(), planned.holders.size());
    for (size_t i = 0; i < planned.holders.size(); ++i)
      EXPECT_EQ(answered.holders[i].bytes, planned.holders[i].bytes);
    if (scan.ok()) Finished(scan->name);
  };
  compare(Spec(3));
  compare(Spec(3));  // by now, slots of the first scan are cached or held
  compare(
      Spec(8, {.mode = RetentionMode::kCapture, .hold_slots = 4, .on_full = OnFull::kSpillDisk}));
  compare(Spec(30'000));  // does not fit
}

// A scan that needs exactly the budget is granted. With a byte less it is refused, and the refusal
// gives the numbers.
TEST_F(MemoryTest, TheExactBudgetIsEnough) {
  ASSERT_OK_AND_ASSIGN(const AdmissionReport plan, engine_->scans().Plan(Spec(5), nullptr));
  Stop();
  budget_ = plan.wanted_bytes - 1;
  Start();
  AdmissionReport report;
  const auto refused = engine_->scans().Submit(Spec(5), &report);
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kExceedsBudget);
  EXPECT_EQ(report.wanted_bytes - report.budget_bytes, 1);
  EXPECT_EQ(Device().used_bytes, 0);
  Stop();
  budget_ = plan.wanted_bytes;
  Start();
  EXPECT_EQ(Finished(Submit(Spec(5)).name).volumes_held, 5);
  EXPECT_EQ(InfoOf(engine_->scans().Submit(Spec(5), nullptr).status()).reason, Reason::kDeviceFull)
      << "held volumes keep their room";
  for (const auto& volume : Held()) EXPECT_THAT(engine_->volumes().Discard(volume.name), IsOk());
  EXPECT_EQ(Finished(Submit(Spec(5)).name).volumes_held, 5) << "with the slots of the first scan";
}

// The n-th allocation of a scan fails, for every n: the engine refuses the scan and charges
// nothing, the next scan works, and a scan that runs beside it is not disturbed.
TEST_F(MemoryTest, AFailedAllocationLeavesNothingBehind) {
  const ScanStatus beside = Submit(Spec(0, {.mode = RetentionMode::kLive}));
  Until([&] {
    return engine_->scans().Get(beside.name)->volumes_done > 100;
  });  // it makes no more allocations
  const int64_t reserved = Device().used_bytes;
  int64_t refused = 0;
  for (int64_t n = 1;; ++n) {
    // Each scan has another layout, so no slot comes from the cache.
    ScanSpec spec = Spec(2);
    spec.pattern.bscans_per_volume = 8 + n;
    AllocationFault::Arm(n);
    const auto scan = engine_->scans().Submit(spec, nullptr);
    const bool hit = !AllocationFault::Pending();
    AllocationFault::Arm(0);
    if (!hit) {
      ASSERT_THAT(scan, IsOk());
      Finished(scan->name);
      break;
    }
    if (scan.ok()) {  // page-locked frames, allocated ahead of their use: a scan runs without them
      Finished(scan->name);
      for (const auto& volume : engine_->volumes().List()) {
        if (volume.scan == scan->name && volume.state == VolumeState::kHeld)
          ASSERT_THAT(engine_->volumes().Discard(volume.name), IsOk());
      }
      ASSERT_EQ(Device().used_bytes, reserved) << n;
      continue;
    }
    ++refused;
    ASSERT_THAT(scan, IsError(absl::StatusCode::kResourceExhausted,
                              "while allocating for the scan on devices/0"))
        << n;
    ASSERT_EQ(Device().used_bytes, reserved) << n;
  }
  EXPECT_GT(refused, 12) << "slots, ring, raw blocks, scratch, chain, digests";
  const int64_t done = engine_->scans().Get(beside.name)->volumes_done;
  Until([&] { return engine_->scans().Get(beside.name)->volumes_done > done + 3; });
  EXPECT_EQ(engine_->scans().Get(beside.name)->state, ScanState::kRunning);
  EXPECT_EQ(engine_->scans().Get(beside.name)->volumes_dropped, 0);
}

TEST_F(MemoryTest, SlotsOfAnEndedScanAreReusedAndGiveWay) {
  ASSERT_THAT(Finished(Submit(Spec(3)).name).state, ScanState::kDone);
  EXPECT_EQ(Device().cached_bytes, 0) << "they hold volumes";
  for (const auto& volume : Held()) ASSERT_THAT(engine_->volumes().Discard(volume.name), IsOk());
  const int64_t cached = Device().cached_bytes;
  EXPECT_GT(cached, 3 * 4096);
  EXPECT_EQ(Device().free_bytes, budget_) << "what is cached is there for whoever asks";
  const ScanStatus again = Submit(Spec(3));
  EXPECT_EQ(Device().cached_bytes, 0);
  Finished(again.name);
  for (const auto& volume : Held()) ASSERT_THAT(engine_->volumes().Discard(volume.name), IsOk());
  EXPECT_EQ(Device().cached_bytes, cached);
  // A scan that needs all memory, to the last kilobyte.
  ScanSpec large = Spec(1);
  int64_t fits = 8, too_much = 130'000;
  while (too_much - fits > 1) {
    large.pattern.bscans_per_volume = (fits + too_much) / 2;
    ASSERT_OK_AND_ASSIGN(const AdmissionReport plan, engine_->scans().Plan(large, nullptr));
    (plan.admitted ? fits : too_much) = large.pattern.bscans_per_volume;
  }
  large.pattern.bscans_per_volume = fits;
  EXPECT_THAT(engine_->scans().Submit(large, nullptr), IsOk());
  EXPECT_EQ(Device().cached_bytes, 0);
  EXPECT_LE(Device().used_bytes, budget_);
}

TEST_F(MemoryTest, TimeToLiveWarnsAndThenDiscards) {
  Finished(Submit(Spec(3, {.ttl_seconds = 100, .ttl_warning_seconds = 20})).name);
  const auto volumes = Held();
  ASSERT_EQ(volumes.size(), 3u);
  EXPECT_NEAR(volumes[0].expires_seconds, 100, 1);
  ASSERT_THAT(engine_->volumes().Hold(volumes[0].name), IsOk());
  EXPECT_EQ(engine_->volumes().Get(volumes[0].name)->expires_seconds, 0)
      << "held: it does not expire";
  ASSERT_THAT(Spill(volumes[1].name, Tier::kDisk), IsOk()) << "another tier does not save it";
  const auto warnings = [&] {
    int64_t n = 0;
    const auto scan = engine_->scans().Get(volumes[0].scan);
    for (const auto& event : scan->events) n += event.kind == EventKind::kExpiring;
    return n;
  };
  clock_.Advance(79);
  engine_->Housekeep();
  EXPECT_EQ(warnings(), 0);
  clock_.Advance(2);
  engine_->Housekeep();
  engine_->Housekeep();
  EXPECT_EQ(warnings(), 2) << "once for each";
  clock_.Advance(20);
  engine_->Housekeep();
  ASSERT_EQ(Held().size(), 1u);
  EXPECT_EQ(Held()[0].name, volumes[0].name);
  EXPECT_NE(engine_->volumes().Get(volumes[2].name)->reason.find("time to live"),
            std::string::npos);
  EXPECT_EQ(SpillFiles(), 0);
  EXPECT_EQ(engine_->scans().Get(volumes[0].scan)->volumes_expired, 2);
  EXPECT_EQ(engine_->Snapshot().volumes_finished["expired"], 2);
  ASSERT_THAT(engine_->volumes().Release(volumes[0].name), IsOk());
  EXPECT_NEAR(engine_->volumes().Get(volumes[0].name)->expires_seconds, 100, 1)
      << "its time begins anew";
}

TEST_F(MemoryTest, ARingKeepsTheLastAndTheMarked) {
  ScanStatus scan =
      Submit(Spec(0, {.mode = RetentionMode::kLive, .hold_slots = 2, .keep_last = 5}));
  std::set<std::string> marked;
  Until([&] {
    const auto held = Held();
    if (!held.empty() && marked.size() < 2 && engine_->volumes().Hold(held.back().name).ok())
      marked.insert(held.back().name);
    return marked.size() == 2;
  });
  const int64_t done = engine_->scans().Get(scan.name)->volumes_done;
  Until([&] { return engine_->scans().Get(scan.name)->volumes_done > done + 50; });
  EXPECT_THAT(engine_->volumes().Hold(Held().back().name),
              IsError(absl::StatusCode::kResourceExhausted, "2 hold slots"));
  ASSERT_THAT(engine_->scans().Stop(scan.name), IsOk());
  scan = Finished(scan.name);
  const auto held = Held();
  EXPECT_EQ(held.size(), 7u);
  int64_t last = -1;
  for (const auto& volume : held) last = std::max(last, volume.index);
  for (const auto& volume : held)
    EXPECT_TRUE(volume.marked == (marked.count(volume.name) > 0) &&
                (volume.marked || volume.index > last - 5))
        << volume.index;
  EXPECT_EQ(scan.volumes_dropped, 0);
  EXPECT_EQ(scan.volumes_overwritten, scan.volumes_done - 7);
}

TEST_F(MemoryTest, AMarkThatIsTakenBackIsTheRingsAgain) {
  const ScanStatus scan = Submit(Spec(0, {.mode = RetentionMode::kLive, .hold_slots = 1}));
  std::string name;
  Until([&] {
    const auto held = Held();
    if (held.empty() || !engine_->volumes().Hold(held.back().name).ok()) return false;
    name = held.back().name;
    return true;
  });
  const int64_t done = engine_->scans().Get(scan.name)->volumes_done;
  Until([&] { return engine_->scans().Get(scan.name)->volumes_done > done + 20; });
  EXPECT_EQ(engine_->volumes().Get(name)->state, VolumeState::kHeld);
  ASSERT_THAT(engine_->volumes().Release(name), IsOk());
  Until([&] { return engine_->volumes().Get(name)->state == VolumeState::kDiscarded; });
}

class OrphanTest : public MemoryTest, public ::testing::WithParamInterface<Orphan> {};

TEST_P(OrphanTest, WhatBecomesOfVolumesWhenTheClientIsGone) {
  ASSERT_OK_AND_ASSIGN(const auto client, engine_->clients().Open("microscope"));
  ScanSpec spec = Spec(2, {.orphan = GetParam()});
  spec.session = client.session.name;
  Finished(Submit(spec).name);
  Finished(Submit(Spec(1)).name);  // it has no owner
  ASSERT_OK_AND_ASSIGN(const auto lease,
                       engine_->clients().leases().TryAcquire({.resource = "buffers/b",
                                                               .mode = LeaseMode::kExclusive,
                                                               .session = client.session.name}));
  ASSERT_OK_AND_ASSIGN(const SessionStatus alive, engine_->clients().KeepAlive(client.secret));
  EXPECT_EQ(alive.volumes, 2);
  EXPECT_EQ(alive.leases, 1);
  EXPECT_GE(alive.bytes, 2 * 4096);
  clock_.Advance(59);
  engine_->Housekeep();
  EXPECT_EQ(Held().size(), 3u);
  EXPECT_THAT(engine_->clients().leases().Check("buffers/b", lease.token, 0, LeaseMode::kExclusive),
              IsOk());
  clock_.Advance(2);
  engine_->Housekeep();
  EXPECT_EQ(InfoOf(engine_->clients()
                       .leases()
                       .Check("buffers/b", lease.token, 0, LeaseMode::kExclusive)
                       .status())
                .reason,
            Reason::kLeaseLost);
  Until([&] { return engine_->Idle(); });
  std::vector<VolumeStatus> mine;
  for (const auto& volume : engine_->volumes().List()) {
    if (volume.session == client.session.name) mine.push_back(volume);
  }
  ASSERT_EQ(mine.size(), 2u);
  for (const auto& volume : mine) {
    EXPECT_TRUE(volume.orphaned);
    switch (GetParam()) {
      case Orphan::kSpillDisk:
        EXPECT_EQ(volume.state, VolumeState::kHeld);
        EXPECT_EQ(volume.tier, Tier::kDisk);
        break;
      case Orphan::kCommitDefault:
        EXPECT_EQ(volume.state, VolumeState::kCommitted) << volume.last_error;
        EXPECT_NE(volume.commit.path.find("/orphaned/"), std::string::npos) << volume.commit.path;
        break;
      case Orphan::kDiscard: EXPECT_EQ(volume.state, VolumeState::kDiscarded); break;
      default: EXPECT_EQ(volume.state, VolumeState::kHeld); EXPECT_EQ(volume.tier, Tier::kDevice);
    }
  }
  // A client that has the secret takes over what is left.
  ASSERT_THAT(engine_->clients().KeepAlive(client.secret), IsOk());
  for (const auto& volume : Held()) EXPECT_FALSE(volume.orphaned);
}
// An orphaned volume that other processes map and that finds no room on the disk stays mapped.
TEST_F(MemoryTest, AMappedOrphanThatCannotBeSpilledStaysMapped) {
  Stop();
  disk_quota_ = 100;
  ClientMemory::MakeExportable(true);
  ASSERT_OK_AND_ASSIGN(
      const auto socket,
      handoff::FdSocket::Open({.path = temp_ / "handoff.sock", .group = ""}, &clock_));
  Start();
  ExportStore& exports = engine_->exports().store();
  exports.Start(socket.get(), 10);
  ASSERT_OK_AND_ASSIGN(const auto client, engine_->clients().Open("microscope"));
  ScanSpec spec = Spec(2, {.orphan = Orphan::kSpillDisk});
  spec.session = client.session.name;
  Finished(Submit(spec).name);
  const auto volumes = Held();
  ASSERT_EQ(volumes.size(), 2u);
  const ExportPeer peer{.local = true, .uid = ::getuid(), .client = "a viewer", .accept = {}};
  std::string name;
  ASSERT_THAT(
      exports.Take(volumes[0].name, peer, {.uid = ::getuid(), .pid = 1}, {}, nullptr, &name),
      IsOk());
  ASSERT_THAT(engine_->clients().Close(client.secret), IsOk());
  engine_->Housekeep();
  Until([&] { return engine_->Idle(); });
  for (const VolumeStatus& before : volumes) {
    ASSERT_OK_AND_ASSIGN(const VolumeStatus volume, engine_->volumes().Get(before.name));
    EXPECT_TRUE(volume.orphaned);
    EXPECT_EQ(volume.tier, Tier::kDevice);
    EXPECT_NE(volume.last_error, "") << "the disk had no room for it";
  }
  EXPECT_THAT(engine_->volumes().Discard(volumes[0].name),
              IsError(absl::StatusCode::kFailedPrecondition, "is mapped by other processes"));
  EXPECT_THAT(engine_->volumes().Discard(volumes[1].name), IsOk());
  ASSERT_TRUE(exports.End(name));
  EXPECT_THAT(engine_->volumes().Discard(volumes[0].name), IsOk());
  socket->Stop();
  Stop();
  ClientMemory::MakeExportable(false);
}

INSTANTIATE_TEST_SUITE_P(Policies, OrphanTest,
                         ::testing::Values(Orphan::kKeep, Orphan::kSpillDisk,
                                           Orphan::kCommitDefault, Orphan::kDiscard));

// A call finds the session, which ends before the lease is granted. A lease without a duration
// would then stay for ever.
TEST_F(MemoryTest, NoLeaseIsGrantedToASessionThatHasEndedMeanwhile) {
  ASSERT_OK_AND_ASSIGN(const auto client, engine_->clients().Open("microscope"));
  ASSERT_OK_AND_ASSIGN(const SessionStatus found, engine_->clients().Find(client.secret));
  ASSERT_THAT(engine_->clients().Close(client.secret), IsOk());
  engine_->Housekeep();
  const auto lease = engine_->clients().leases().TryAcquire(
      {.resource = "buffers/b", .mode = LeaseMode::kExclusive, .session = found.name});
  EXPECT_EQ(InfoOf(lease.status()).reason, Reason::kNoSession) << lease.status();
  EXPECT_TRUE(engine_->clients().leases().List().empty());
}

TEST_F(MemoryTest, ScratchScansEndWithTheirClient) {
  ASSERT_OK_AND_ASSIGN(const auto client, engine_->clients().Open("viewer"));
  ScanSpec spec = Spec(0, {.mode = RetentionMode::kLive, .orphan = Orphan::kDiscard});
  spec.session = client.session.name;
  const ScanStatus scan = Submit(spec);
  Until([&] { return engine_->scans().Get(scan.name)->volumes_done > 2; });
  ASSERT_THAT(engine_->clients().Close(client.secret), IsOk());
  EXPECT_EQ(Finished(scan.name).reason_code, Reason::kSessionExpired);
  Until([&] {
    engine_->Housekeep();
    return Held().empty();
  });
}

// The engine never waits for a client: whatever clients lease and read, a LIVE scan continues and
// its ring advances.
TEST_F(MemoryTest, LeasesAndReadersNeverHoldAScanUp) {
  const ScanStatus scan = Submit(Spec(0, {.mode = RetentionMode::kLive}));
  std::vector<std::shared_ptr<VolumeReader>> readers;
  std::vector<std::string> tokens;
  for (int round = 0; round < 40; ++round) {
    const auto held = Held();
    if (!held.empty()) {
      (void)engine_->clients().AcquireLease(
          {.resource = held.back().name, .mode = LeaseMode::kShared}, {},
          [&](const absl::StatusOr<Lease>& lease) {
            // Without a lease, the ring has advanced past the volume meanwhile.
            if (lease.ok()) tokens.push_back(lease->token);
          });
      if (readers.size() < 3) {  // each keeps a slot of the ring
        if (auto reader = engine_->volumes().Read({.volume = held.back().name}); reader.ok())
          readers.push_back(*reader);
      }
    }
    const int64_t done = engine_->scans().Get(scan.name)->volumes_done;
    Until([&] { return engine_->scans().Get(scan.name)->volumes_done > done + 1; });
  }
  EXPECT_EQ(engine_->scans().Get(scan.name)->state, ScanState::kRunning);
  EXPECT_GT(engine_->scans().Get(scan.name)->volumes_overwritten, 30);
  EXPECT_FALSE(tokens.empty());
  for (const auto& token : tokens) {
    const absl::Status released = engine_->clients().leases().Release(token);
    if (!released.ok())
      // The lease was lost with its volume.
      EXPECT_EQ(InfoOf(released).reason, Reason::kLeaseLost) << released;
  }
  EXPECT_TRUE(engine_->clients().leases().List().empty());
}

TEST_F(MemoryTest, ALeasedVolumeIsNotDiscardedByOthers) {
  Finished(Submit(Spec(1)).name);
  const std::string name = Held()[0].name;
  ASSERT_OK_AND_ASSIGN(
      const auto lease,
      engine_->clients().leases().TryAcquire(
          {.resource = name, .mode = LeaseMode::kShared, .holder = "annotator", .seconds = 5}));
  EXPECT_EQ(engine_->volumes().Get(name)->shared_leases, 1);
  const auto refused = engine_->volumes().Discard(name);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kAborted, "leased (SHARED) by annotator"));
  EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kLeased);
  clock_.Advance(6);
  EXPECT_THAT(engine_->volumes().Discard(name), IsOk()) << "it has expired";
  (void)lease;
}

TEST_F(MemoryTest, RetentionIsChecked) {
  const auto refused = [&](Retention retention, const char* field) {
    const auto scan = engine_->scans().Submit(Spec(3, retention), nullptr);
    EXPECT_EQ(scan.status().code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(InfoOf(scan.status()).field, field) << scan.status();
  };
  refused({.ttl_seconds = 0.5}, "retention.ttl");
  refused({.ttl_seconds = -1}, "retention.ttl");
  refused({.ttl_seconds = std::numeric_limits<double>::quiet_NaN()}, "retention.ttl");
  refused({.ttl_seconds = 10, .ttl_warning_seconds = 6}, "retention.ttl_warning");
  refused({.ttl_warning_seconds = 1}, "retention.ttl_warning");
  refused({.keep_last = 3}, "retention.keep_last");
  refused({.on_full = OnFull::kSpillDisk, .on_tier_full = OnFull::kSpillHost},
          "retention.on_tier_full");
  refused({.orphan = Orphan::kDiscard}, "retention.orphan");
  refused({.mode = RetentionMode::kLive, .disposition = Disposition::kAutoDiscard, .keep_last = 3},
          "retention.keep_last");
  EXPECT_EQ(Device().used_bytes, 0);
}

}  // namespace
}  // namespace octavo::engine
