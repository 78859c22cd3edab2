// Volumes that leave the device for host memory or disk, and come back, seen through the engine.

#include "gpu/base/failpoint.h"
#include "tests/server/engine/memory_fixture.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using octavo::testing::IsError;
using octavo::testing::IsOk;

class TiersTest : public testing::MemoryTest {};

TEST_F(TiersTest, ACaptureSpillsToDiskAndNothingIsLost) {
  const ScanStatus scan = Finished(Submit(Spec(40, {.mode = RetentionMode::kCapture,
                                                    .hold_slots = 4,
                                                    .on_full = OnFull::kSpillDisk}))
                                       .name);
  EXPECT_EQ(scan.volumes_done, 40);
  EXPECT_EQ(scan.volumes_dropped, 0);
  EXPECT_EQ(scan.volumes_held, 40);
  EXPECT_GE(scan.volumes_spilled, 36);
  // The same scan, entirely on the device, is the reference.
  const ScanStatus plain = Finished(Submit(Spec(40)).name);
  const auto volumes = Held();
  ASSERT_EQ(volumes.size(), 80u);
  for (size_t i = 0; i < 40; ++i) {
    const VolumeStatus &spilled = volumes[i], &truth = volumes[40 + i];
    ASSERT_EQ(spilled.index, truth.index);
    EXPECT_EQ(spilled.digest, truth.digest);
    ASSERT_OK_AND_ASSIGN(const std::string a, Bytes_(spilled.name));
    ASSERT_OK_AND_ASSIGN(const std::string b, Bytes_(truth.name));
    EXPECT_EQ(a, b) << spilled.index << " " << Name(spilled.tier);
    ASSERT_OK_AND_ASSIGN(const std::string part, Bytes_(spilled.name, {2, 3, 5}, {4, 7, 11}));
    ASSERT_OK_AND_ASSIGN(const std::string wanted, Bytes_(truth.name, {2, 3, 5}, {4, 7, 11}));
    EXPECT_EQ(part, wanted);
  }
  EXPECT_EQ(plain.volumes_spilled, 0);
  EXPECT_EQ(SpillFiles(), scan.volumes_spilled);
  EXPECT_EQ(Use(Tier::kDisk).volumes, scan.volumes_spilled);
  EXPECT_GT(Use(Tier::kDisk).used_bytes, 36 * 4096);
  for (const auto& volume : volumes) ASSERT_THAT(engine_->volumes().Discard(volume.name), IsOk());
  EXPECT_EQ(SpillFiles(), 0) << "discarded files are removed";
  EXPECT_EQ(Use(Tier::kDisk).used_bytes, 0);
  EXPECT_EQ(Device().used_bytes, 0);
}

TEST_F(TiersTest, AFullTierFallsBackAsTheScanSays) {
  Stop();
  disk_quota_ = 5 * (4096 + 5000);  // four or five files
  Start();
  const ScanStatus stopped = Finished(Submit(Spec(60, {.mode = RetentionMode::kCapture,
                                                       .hold_slots = 4,
                                                       .on_full = OnFull::kSpillDisk}))
                                          .name);
  EXPECT_EQ(stopped.reason_code, Reason::kHoldSlotsFull);
  EXPECT_NE(stopped.reason.find("the tier DISK is full"), std::string::npos) << stopped.reason;
  EXPECT_GT(stopped.spill_failures, 0);
  EXPECT_LT(stopped.volumes_done, 20);
  EXPECT_EQ(stopped.volumes_held, stopped.volumes_done) << "what was acquired is there";
  for (const auto& volume : Held()) {
    EXPECT_THAT(Bytes_(volume.name), IsOk());
    ASSERT_THAT(engine_->volumes().Discard(volume.name), IsOk());
  }
  const ScanStatus dropped = Finished(Submit(Spec(60, {.mode = RetentionMode::kCapture,
                                                       .hold_slots = 4,
                                                       .on_full = OnFull::kSpillDisk,
                                                       .on_tier_full = OnFull::kDropNew}))
                                          .name);
  EXPECT_EQ(dropped.reason_code, Reason::kCompleted);
  EXPECT_GT(dropped.volumes_dropped, 40);
  EXPECT_EQ(dropped.volumes_done + dropped.volumes_dropped, 60);
}

TEST_F(TiersTest, AFullDiskLeavesTheVolumeWhereItIs) {
  Finished(Submit(Spec(1)).name);
  const std::string name = Held()[0].name;
  ArmFailpoint("spill_write:errno=28");
  EXPECT_THAT(Spill(name, Tier::kDisk),
              IsError(absl::StatusCode::kResourceExhausted, "No space left"));
  const VolumeStatus volume = *engine_->volumes().Get(name);
  EXPECT_EQ(volume.tier, Tier::kDevice);
  EXPECT_EQ(volume.moving, Move::kNone);
  EXPECT_NE(volume.last_error.find("No space left"), std::string::npos);
  EXPECT_EQ(SpillFiles(), 0);
  EXPECT_THAT(Bytes_(name), IsOk());
  EXPECT_THAT(Spill(name, Tier::kDisk), IsOk()) << "the next one works";
}

TEST_F(TiersTest, TiersThereAndBack) {
  Finished(Submit(Spec(2)).name);
  const VolumeStatus before = Held()[0];
  ASSERT_OK_AND_ASSIGN(const std::string truth, Bytes_(before.name));
  const int64_t used = Device().used_bytes;
  for (const Tier tier :
       {Tier::kHost, Tier::kDisk, Tier::kHost}) {  // also from one tier to another
    ASSERT_OK_AND_ASSIGN(const VolumeStatus moved, Spill(before.name, tier));
    EXPECT_EQ(moved.tier, tier);
    EXPECT_EQ(moved.digest, before.digest);
    EXPECT_EQ(moved.state, VolumeState::kHeld);
    // The worker of the previous reader may still be releasing the slot.
    for (int i = 0; i < 1000 && Device().used_bytes >= used; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LT(Device().used_bytes, used);
    EXPECT_EQ(SpillFiles(), tier == Tier::kDisk);
    EXPECT_EQ(Use(tier).volumes, 1);
    EXPECT_EQ(*Bytes_(before.name), truth);
    EXPECT_THAT(Spill(before.name, tier), IsOk()) << "it is there";
  }
  ASSERT_OK_AND_ASSIGN(const VolumeStatus back, Restore(before.name));
  EXPECT_EQ(back.tier, Tier::kDevice);
  EXPECT_EQ(*Bytes_(before.name), truth);
  EXPECT_EQ(Use(Tier::kHost).used_bytes, 0);
  EXPECT_EQ(SpillFiles(), 0);
  EXPECT_THAT(Restore(before.name), IsOk()) << "it is there";
  ASSERT_THAT(Spill(before.name, Tier::kDisk), IsOk());
  ASSERT_OK_AND_ASSIGN(const auto outcome, Commit(before.name, "v.npy"));
  EXPECT_EQ(outcome.raw_bytes, 4096);
  EXPECT_EQ(SpillFiles(), 0) << "committed from disk";
  EXPECT_EQ(engine_->volumes().Get(before.name)->state, VolumeState::kCommitted);
  EXPECT_EQ(InfoOf(Spill("volumes/none", Tier::kDisk).status()).reason, Reason::kNoVolume);
  EXPECT_THAT(Spill(before.name, Tier::kDisk),
              IsError(absl::StatusCode::kFailedPrecondition, "COMMITTED"));
}

class RestoreTest : public TiersTest, public ::testing::WithParamInterface<OnFull> {};

TEST_P(RestoreTest, NeedsRoomAndSaysWhoHasItOrMovesAnother) {
  const bool may_move = Spills(GetParam());
  ScanSpec spec =
               Spec(3, {.mode = RetentionMode::kCapture, .hold_slots = 3, .on_full = GetParam()}),
           waits = Spec(1);
  spec.acquisition.records_per_block = waits.acquisition.records_per_block = 64;
  waits.source.emplace<PushSource>();  // no client pushes: it keeps its granted memory
  waits.acquisition.raw_type_given = true;
  waits.acquisition.record_rate_hz = 0;
  ASSERT_OK_AND_ASSIGN(const AdmissionReport three, engine_->scans().Plan(spec, nullptr));
  ASSERT_OK_AND_ASSIGN(const AdmissionReport one, engine_->scans().Plan(waits, nullptr));
  Stop();
  // Two volumes, and the memory of the waiting scan.
  budget_ = std::max(three.wanted_bytes, one.wanted_bytes + 2 * (three.needs[0].bytes / 3));
  Start();
  Finished(Submit(spec).name);
  const std::string name = Held()[0].name, next = Held()[1].name;
  ASSERT_THAT(Spill(name, Tier::kDisk), IsOk());
  const ScanStatus other = Submit(waits);
  ASSERT_LT(Device().free_bytes, 4096);
  if (may_move) {  // the client chose that volumes move to make room
    ASSERT_THAT(Restore(name), IsOk());
    EXPECT_EQ(engine_->volumes().Get(next)->tier, TierOf(GetParam()));
    EXPECT_THAT(Bytes_(next), IsOk());
    return;
  }
  EXPECT_THAT(Restore(name), IsError(absl::StatusCode::kResourceExhausted, "largest holder"));
  EXPECT_EQ(engine_->volumes().Get(name)->tier, Tier::kDisk);
  EXPECT_EQ(engine_->volumes().Get(name)->moving, Move::kNone);
  EXPECT_THAT(Bytes_(name), IsOk()) << "still to be read";
  ASSERT_THAT(engine_->scans().Cancel(other.name), IsOk());
  Finished(other.name);
  EXPECT_THAT(Restore(name), IsOk());
}
INSTANTIATE_TEST_SUITE_P(Policies, RestoreTest,
                         ::testing::Values(OnFull::kStopAtVolume, OnFull::kSpillHost,
                                           OnFull::kSpillDisk));

TEST_F(TiersTest, SpilledFilesAreHeldAgainByTheNextProcess) {
  Finished(Submit(Spec(3)).name);
  std::map<std::string, std::pair<std::string, VolumeStatus>> truth;
  for (const auto& volume : Held()) truth[volume.name] = {*Bytes_(volume.name), volume};
  const std::string on_disk = truth.begin()->first, in_host = std::next(truth.begin())->first;
  ASSERT_THAT(Spill(on_disk, Tier::kDisk), IsOk());
  ASSERT_THAT(Spill(in_host, Tier::kHost), IsOk());
  Stop();
  Start();
  const auto volumes = Held();
  ASSERT_EQ(volumes.size(), 1u) << "the others lived in memory";
  const VolumeStatus& found = volumes[0];
  const VolumeStatus& before = truth[on_disk].second;
  EXPECT_EQ(found.name, on_disk);
  EXPECT_TRUE(found.recovered);
  EXPECT_TRUE(found.kept);
  EXPECT_EQ(found.tier, Tier::kDisk);
  EXPECT_EQ(found.digest, before.digest);
  EXPECT_EQ(found.scan, before.scan);
  EXPECT_EQ(found.index, before.index);
  EXPECT_EQ(found.bytes, before.bytes);
  EXPECT_EQ(*Bytes_(found.name), truth[on_disk].first);
  ASSERT_OK_AND_ASSIGN(const VolumeStatus restored, Restore(found.name));
  EXPECT_EQ(restored.tier, Tier::kDevice);
  EXPECT_EQ(*Bytes_(found.name), truth[on_disk].first);
  ASSERT_THAT(Commit(found.name, "again.npy").status(), IsOk());
}

TEST_F(TiersTest, ADamagedSpillFileIsNotTaken) {
  Finished(Submit(Spec(1)).name);
  const std::string name = Held()[0].name;
  ASSERT_THAT(Spill(name, Tier::kDisk), IsOk());
  for (const auto& entry : std::filesystem::directory_iterator(temp_ / "spill")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(100);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(100);
    file.put(byte);
  }
  EXPECT_THAT(Bytes_(name), IsError(absl::StatusCode::kDataLoss, "CRC"));
  EXPECT_THAT(Restore(name), IsError(absl::StatusCode::kDataLoss, "CRC"));
  EXPECT_THAT(Commit(name, "v.npy"), IsError(absl::StatusCode::kDataLoss, "CRC"));
  EXPECT_EQ(engine_->volumes().Get(name)->state, VolumeState::kHeld);
  EXPECT_FALSE(std::filesystem::exists(temp_ / "data/v.npy"));
}

// 500 volumes and a client that never discards: no held volume changes, the policy is kept, and
// every gap is a dropped volume.
class NeverDiscards : public TiersTest, public ::testing::WithParamInterface<OnFull> {};

TEST_P(NeverDiscards, HeldVolumesStayWhatTheyAre) {
  const ScanStatus scan = Finished(Submit(Spec(500, {.mode = RetentionMode::kCapture,
                                                     .hold_slots = 6,
                                                     .on_full = GetParam(),
                                                     .on_tier_full = OnFull::kDropNew}))
                                       .name);
  std::set<int64_t> indices;
  for (const auto& volume : Held()) {
    indices.insert(volume.index);
    ASSERT_OK_AND_ASSIGN(const std::string bytes, Bytes_(volume.name));
    ASSERT_EQ(absl::StrCat("sum64:", absl::Hex(DigestBytes(bytes.data(), std::ssize(bytes), 0),
                                               absl::kZeroPad16)),
              volume.digest)
        << volume.index;
  }
  EXPECT_EQ(std::ssize(indices), scan.volumes_held);
  EXPECT_EQ(scan.volumes_discarded + scan.volumes_overwritten, 0);
  switch (GetParam()) {
    case OnFull::kStopAtVolume:
      EXPECT_EQ(scan.reason_code, Reason::kHoldSlotsFull);
      EXPECT_EQ(scan.volumes_done, 6);
      EXPECT_EQ(scan.volumes_dropped, 0);
      break;
    case OnFull::kDropNew:
      EXPECT_EQ(scan.volumes_done, 6);
      EXPECT_EQ(scan.volumes_dropped, 494);
      break;
    case OnFull::kSpillHost:  // a MiB: 256 volumes, and those in the slots
      EXPECT_EQ(scan.volumes_held, 256 + 6);
      EXPECT_EQ(scan.volumes_dropped, 500 - 262);
      EXPECT_EQ(Use(Tier::kHost).used_bytes, 1 << 20);
      break;
    default: EXPECT_EQ(scan.volumes_held, 500); EXPECT_EQ(scan.volumes_dropped, 0);
  }
  EXPECT_EQ(500 - std::ssize(indices),
            GetParam() == OnFull::kStopAtVolume ? 494 : scan.volumes_dropped);
}
INSTANTIATE_TEST_SUITE_P(Policies, NeverDiscards,
                         ::testing::Values(OnFull::kStopAtVolume, OnFull::kDropNew,
                                           OnFull::kSpillHost, OnFull::kSpillDisk));

TEST_F(TiersTest, ATierThatIsOffIsRefusedBeforeTheFirstRecord) {
  Stop();
  host_quota_ = disk_quota_ = 0;
  Start();
  for (const OnFull on_full : {OnFull::kSpillHost, OnFull::kSpillDisk}) {
    const auto refused =
        engine_->scans().Submit(Spec(9, {.hold_slots = 4, .on_full = on_full}), nullptr);
    EXPECT_THAT(refused,
                IsError(absl::StatusCode::kFailedPrecondition, "retention.on_full: the tier"));
    EXPECT_EQ(InfoOf(refused.status()).reason, Reason::kSpillOff);
    EXPECT_EQ(
        engine_->scans().Plan(Spec(9, {.hold_slots = 4, .on_full = on_full}), nullptr).status(),
        refused.status());
  }
  EXPECT_TRUE(engine_->scans().List().empty());
}

}  // namespace
}  // namespace octavo::engine
