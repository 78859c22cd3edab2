#include "server/volume/volume_table.h"

#include "tests/server/volume/table_fixture.h"
#include "tests/support/fake_mappings.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class VolumeTableTest : public TableFixture {};

TEST(VolumeEntryTest, EveryMoveHasItsName) {
  EXPECT_STREQ(Name(Move::kNone), "");
  EXPECT_STREQ(Name(Move::kSpilling), "SPILLING");
  EXPECT_STREQ(Name(Move::kRestoring), "RESTORING");
  EXPECT_STREQ(Name(Move::kRelocating), "RELOCATING");
}

TEST(VolumeEntryTest, AStatusIsTheDescriptionAndWhatBecameOfTheVolume) {
  VolumeStatus begun;
  begun.name = "volumes/a";
  begun.labels["sample"] = "7";
  begun.ttl_seconds = 10;
  begun.device = "devices/1";
  begun.job_parameters = "{}";
  VolumeEntry entry = MakeEntry(begun);
  VolumeStatus now = StatusOf(entry, 0);
  EXPECT_EQ(now.labels, begun.labels);
  EXPECT_EQ(now.device, "devices/1");
  EXPECT_EQ(now.job_parameters, "{}");
  EXPECT_EQ(now.state, VolumeState::kAcquiring);
  EXPECT_EQ(now.held_seconds, 0);
  EXPECT_EQ(now.expires_seconds, 0) << "its time has not begun";

  entry.state = VolumeState::kHeld;
  entry.sealed_ns = entry.living_ns = 1'000'000'000;
  now = StatusOf(entry, 4'000'000'000);
  EXPECT_DOUBLE_EQ(now.held_seconds, 3);
  EXPECT_DOUBLE_EQ(now.expires_seconds, 7);
  EXPECT_DOUBLE_EQ(StatusOf(entry, 40'000'000'000).expires_seconds, 1e-3) << "never 0: it is due";
  entry.marked = true;
  EXPECT_EQ(StatusOf(entry, 4'000'000'000).expires_seconds, 0);

  entry.commit = storage::CommitOutcome{.path = "/x"};
  entry.state = VolumeState::kCommitted;
  entry.gone_ns = 6'000'000'000;
  now = StatusOf(entry, 60'000'000'000);
  EXPECT_DOUBLE_EQ(now.held_seconds, 5);
  EXPECT_TRUE(now.has_commit);
  EXPECT_EQ(now.commit.path, "/x");
}

TEST_F(VolumeTableTest, AVolumeThatLeavesIsOfNoScanAnyMoreAndIsFoundAllTheSame) {
  const auto slot = Held("volumes/a", {});
  Held("volumes/b", {});
  VolumeBytes bytes;
  {
    MutexLock lock(table_.mutex());
    VolumeEntry& entry = **table_.Find("volumes/a");
    const auto about = entry.about;
    entry.job_parameters = "much";
    bytes =
        table_.Leave(entry, VolumeState::kDiscarded, Reason::kDiscarded, "by a test", "discarded");
    EXPECT_EQ(entry.about, about) << "the description is shared, not copied";
    EXPECT_EQ(entry.job_parameters, "");
    EXPECT_EQ(table_.InMemoryOf("scans/a").size(), 1u);
    EXPECT_EQ(table_.InMemoryOf("scans/z").size(), 0u);
    EXPECT_EQ(table_.InMemory().size(), 1u);
    EXPECT_EQ(table_.All().size(), 2u);
    EXPECT_EQ(table_.totals().finished["discarded"], 1);
  }
  EXPECT_FALSE(slot.expired()) << "let go of after the lock";
  table_.LetGo("volumes/a", std::move(bytes));
  EXPECT_TRUE(slot.expired());
  EXPECT_EQ(Get("volumes/a").reason, "by a test");
  MutexLock lock(table_.mutex());
  EXPECT_THAT(table_.Find("volumes/z"), IsError(absl::StatusCode::kNotFound, "no volume"));
}

TEST_F(VolumeTableTest, WhatProtectsAVolumeIsAskedForClientsOnly) {
  Held("volumes/a", {.session = "sessions/a"});
  LeaseTable leases(&clock_);
  octavo::testing::FakeMappings mappings;
  mappings.names = {"volumes/a"};
  table_.SetProtections({.leases = &leases, .mappings = &mappings});
  const auto lease =
      leases.TryAcquire({.resource = "volumes/a", .session = "", .holder = "a viewer"});
  ASSERT_THAT(lease, IsOk());
  MutexLock lock(table_.mutex());
  VolumeEntry& entry = **table_.Find("volumes/a");
  const ClientVerb stranger, own{.lease_token = lease->token}, detaching{.detach_exports = true},
      policy{.lease_token = lease->token, .of_orphans = true};
  EXPECT_THAT(table_.CheckLeases(entry, nullptr), IsOk());
  EXPECT_THAT(table_.CheckLeases(entry, &stranger),
              IsError(absl::StatusCode::kAborted, "a viewer"));
  EXPECT_THAT(table_.CheckLeases(entry, &own), IsOk());
  EXPECT_THAT(table_.CheckLeases(entry, &policy),
              IsError(absl::StatusCode::kFailedPrecondition, "sessions/a has come back"));
  EXPECT_EQ(InfoOf(table_.CheckLeases(entry, &policy)).reason, Reason::kAdopted);
  entry.orphaned = true;
  EXPECT_THAT(table_.CheckLeases(entry, &policy), IsOk());
  EXPECT_THAT(table_.CheckExports(entry, nullptr), IsOk());
  EXPECT_THAT(table_.CheckExports(entry, &stranger),
              IsError(absl::StatusCode::kFailedPrecondition, "somebody maps it"));
  EXPECT_THAT(table_.CheckExports(entry, &detaching), IsOk());
}

TEST_F(VolumeTableTest, AnObserverThatThrowsUndoesNothing) {
  octavo::testing::VolumeCallback broken([](const VolumeStatus&) { throw std::bad_alloc(); });
  VolumeTable table(&ledger_, &clock_);
  table.AddObserver(&broken);
  table.Tell(VolumeStatus());
}

}  // namespace
}  // namespace octavo::engine
