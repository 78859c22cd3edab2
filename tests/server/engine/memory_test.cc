// What a user is promised of device memory, seen through the engine: admission, retention, tiers, clients that go away, leases.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"

#include "gpu/base/allocation_fault.h"
#include "gpu/device.h"
#include "gpu/digest.h"
#include "server/engine/engine.h"
#include "server/storage/commit_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {
namespace {

using octavo::testing::FakeClock;
using octavo::testing::IsError;
using octavo::testing::IsOk;
using octavo::testing::TempFolder;

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }
  void TearDown() override {
    AllocationFault::Arm(0);
    storage::ArmFailpoint("");
    Stop();
  }

  void Start() {
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(store_, storage::CommitStore::Open(temp_ / "state", {temp_ / "data"}, &report));
    config_.spilled.clear();
    ASSERT_OK_AND_ASSIGN(spill_, storage::SpillFolder::Open(temp_ / "spill", disk_quota_, &config_.spilled, &report));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened, OpenDevices("host"));
    config_.memory_bytes = budget_;
    config_.frame_pool_bytes = 16 << 20;
    config_.server_id = "testtest";
    config_.software = "octavo test";
    config_.clock = &clock_;
    config_.spill_host_bytes = host_quota_;
    config_.spill_folder = spill_.get();
    ASSERT_OK_AND_ASSIGN(engine_, Engine::Create(config_, std::move(opened.devices), store_.get()));
  }
  void Stop() {
    engine_ = nullptr;
    spill_ = nullptr;
    store_ = nullptr;
  }

  /// 16 × 8 A-scans of 32 depths, U8: volumes of 4096 bytes, as fast as possible.
  ScanSpec Spec(int64_t volumes, Retention retention = {}) {
    ScanSpec spec;
    auto& source = spec.source.emplace<SimulatedSource>();
    source.as_fast_as_possible = true;
    source.seed = 7;
    spec.acquisition.samples_per_record = 64;
    spec.pattern.ascans_per_bscan = 16;
    spec.pattern.bscans_per_volume = 8;
    spec.pattern.volumes = volumes;
    spec.retention = retention;
    return spec;
  }
  ScanStatus Submit(const ScanSpec& spec) {
    auto scan = engine_->SubmitScan(spec, nullptr);
    EXPECT_THAT(scan, IsOk());
    return scan.ok() ? *scan : ScanStatus{};
  }
  /// Waits until `done` says so; the test's own time-out ends what never comes.
  template <class F>
  void Until(F done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ScanStatus Finished(const std::string& name) {
    Until([&] { return IsFinal(engine_->GetScan(name)->state); });
    return *engine_->GetScan(name);
  }
  std::vector<VolumeStatus> Held() {
    auto volumes = engine_->ListVolumes();
    std::erase_if(volumes, [](const VolumeStatus& v) { return v.state != VolumeState::kHeld; });
    return volumes;
  }
  absl::StatusOr<std::string> Bytes_(const std::string& name, std::vector<int64_t> start = {}, std::vector<int64_t> count = {}) {
    OCTAVO_ASSIGN_OR_RETURN(auto reader, engine_->ReadVolume(name, start, count));
    std::string all;
    for (;;) {
      std::promise<absl::StatusOr<Bytes>> promise;
      reader->Next(64 << 10, [&](absl::StatusOr<Bytes> piece) { promise.set_value(std::move(piece)); });
      OCTAVO_ASSIGN_OR_RETURN(const Bytes piece, promise.get_future().get());
      if (piece.size == 0) return all;
      all.append(static_cast<const char*>(piece.data), static_cast<size_t>(piece.size));
    }
  }
  absl::StatusOr<VolumeStatus> Spill(const std::string& name, Tier tier) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    engine_->SpillVolume(name, tier, [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); });
    return promise.get_future().get();
  }
  absl::StatusOr<VolumeStatus> Restore(const std::string& name) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    engine_->RestoreVolume(name, [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); });
    return promise.get_future().get();
  }
  absl::StatusOr<storage::CommitOutcome> Commit(const std::string& name, const std::string& destination) {
    std::promise<absl::StatusOr<storage::CommitOutcome>> promise;
    CommitCallbacks callbacks;
    callbacks.on_done = [&](absl::StatusOr<storage::CommitOutcome> outcome) { promise.set_value(std::move(outcome)); };
    CommitOptions options{.destination = destination};
    options.writer.format = storage::Format::kNpy;
    OCTAVO_ASSIGN_OR_RETURN(auto handle, engine_->CommitVolume(name, options, "", std::move(callbacks)));
    return promise.get_future().get();
  }
  DeviceStatus Device() { return engine_->ListDevices()[0]; }
  TierUse Use(Tier tier) {
    for (const TierUse& use : engine_->GetMemory().tiers) {
      if (use.tier == tier) return use;
    }
    return {};
  }
  int64_t SpillFiles() {
    int64_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(temp_ / "spill")) files += entry.is_regular_file();
    return files;
  }

  TempFolder temp_;
  FakeClock clock_;
  EngineConfig config_;
  int64_t budget_ = 64 << 20, disk_quota_ = 64 << 20, host_quota_ = 1 << 20;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<storage::SpillFolder> spill_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(MemoryTest, PlanAndSubmitGiveTheSameReport) {
  const auto compare = [&](const ScanSpec& spec) {
    ASSERT_OK_AND_ASSIGN(const AdmissionReport planned, engine_->PlanScan(spec, nullptr));
    AdmissionReport answered;
    const auto scan = engine_->SubmitScan(spec, &answered);
    EXPECT_EQ(scan.ok(), planned.admitted);
    EXPECT_EQ(answered.admitted, planned.admitted);
    EXPECT_EQ(answered.wanted_bytes, planned.wanted_bytes);
    EXPECT_EQ(answered.free_bytes, planned.free_bytes);
    EXPECT_EQ(answered.advice, planned.advice);
    EXPECT_EQ(answered.seconds_to_memory_full, planned.seconds_to_memory_full);
    EXPECT_EQ(answered.seconds_to_spill_full, planned.seconds_to_spill_full);
    ASSERT_EQ(answered.holders.size(), planned.holders.size());
    for (size_t i = 0; i < planned.holders.size(); ++i) EXPECT_EQ(answered.holders[i].bytes, planned.holders[i].bytes);
    if (scan.ok()) Finished(scan->name);
  };
  compare(Spec(3));
  compare(Spec(3));  // slots of the first one are cached or held by now
  compare(Spec(8, {.mode = RetentionMode::kCapture, .hold_slots = 4, .on_full = OnFull::kSpillDisk}));
  compare(Spec(30'000));  // does not fit
}

// Needs exactly the budget: granted. A byte less: refused, with the numbers.
TEST_F(MemoryTest, TheExactBudgetIsEnough) {
  ASSERT_OK_AND_ASSIGN(const AdmissionReport plan, engine_->PlanScan(Spec(5), nullptr));
  Stop();
  budget_ = plan.wanted_bytes - 1;
  Start();
  AdmissionReport report;
  const auto refused = engine_->SubmitScan(Spec(5), &report);
  EXPECT_EQ(InfoOf(refused.status()).reason, "EXCEEDS_BUDGET");
  EXPECT_EQ(report.wanted_bytes - report.budget_bytes, 1);
  EXPECT_EQ(Device().used_bytes, 0);
  Stop();
  budget_ = plan.wanted_bytes;
  Start();
  EXPECT_EQ(Finished(Submit(Spec(5)).name).volumes_held, 5);
  EXPECT_EQ(InfoOf(engine_->SubmitScan(Spec(5), nullptr).status()).reason, "DEVICE_FULL") << "held volumes keep their room";
  for (const auto& volume : Held()) EXPECT_THAT(engine_->DiscardVolume(volume.name), IsOk());
  EXPECT_EQ(Finished(Submit(Spec(5)).name).volumes_held, 5) << "with the slots of the first scan";
}

// Fails the n-th allocation of a scan, for every n: refused, nothing charged, the next one works, the scan beside is not disturbed.
TEST_F(MemoryTest, AFailedAllocationLeavesNothingBehind) {
  const ScanStatus beside = Submit(Spec(0, {.mode = RetentionMode::kLive}));
  Until([&] { return engine_->GetScan(beside.name)->volumes_done > 100; });  // it allocates nothing any more
  const int64_t reserved = Device().used_bytes;
  int64_t refused = 0;
  for (int64_t n = 1;; ++n) {
    // Another layout each time: no slot comes from the cache.
    ScanSpec spec = Spec(2);
    spec.pattern.bscans_per_volume = 8 + n;
    AllocationFault::Arm(n);
    const auto scan = engine_->SubmitScan(spec, nullptr);
    const bool hit = !AllocationFault::Pending();
    AllocationFault::Arm(0);
    if (!hit) {
      ASSERT_THAT(scan, IsOk());
      Finished(scan->name);
      break;
    }
    if (scan.ok()) {  // page-locked frames made ahead of their need: a scan goes on without them
      Finished(scan->name);
      for (const auto& volume : engine_->ListVolumes()) {
        if (volume.scan == scan->name && volume.state == VolumeState::kHeld) ASSERT_THAT(engine_->DiscardVolume(volume.name), IsOk());
      }
      ASSERT_EQ(Device().used_bytes, reserved) << n;
      continue;
    }
    ++refused;
    ASSERT_THAT(scan, IsError(absl::StatusCode::kResourceExhausted, "while allocating for the scan on devices/0")) << n;
    ASSERT_EQ(Device().used_bytes, reserved) << n;
  }
  EXPECT_GT(refused, 12) << "slots, ring, raw blocks, scratch, chain, digests";
  const int64_t done = engine_->GetScan(beside.name)->volumes_done;
  Until([&] { return engine_->GetScan(beside.name)->volumes_done > done + 3; });
  EXPECT_EQ(engine_->GetScan(beside.name)->state, ScanState::kRunning);
  EXPECT_EQ(engine_->GetScan(beside.name)->volumes_dropped, 0);
}

TEST_F(MemoryTest, SlotsOfAnEndedScanAreReusedAndGiveWay) {
  ASSERT_THAT(Finished(Submit(Spec(3)).name).state, ScanState::kDone);
  EXPECT_EQ(Device().cached_bytes, 0) << "they hold volumes";
  for (const auto& volume : Held()) ASSERT_THAT(engine_->DiscardVolume(volume.name), IsOk());
  const int64_t cached = Device().cached_bytes;
  EXPECT_GT(cached, 3 * 4096);
  EXPECT_EQ(Device().free_bytes, budget_) << "what is cached is there for whoever asks";
  const ScanStatus again = Submit(Spec(3));
  EXPECT_EQ(Device().cached_bytes, 0);
  Finished(again.name);
  for (const auto& volume : Held()) ASSERT_THAT(engine_->DiscardVolume(volume.name), IsOk());
  EXPECT_EQ(Device().cached_bytes, cached);
  // A scan that needs all there is, to the last kilobyte.
  ScanSpec large = Spec(1);
  int64_t fits = 8, too_much = 130'000;
  while (too_much - fits > 1) {
    large.pattern.bscans_per_volume = (fits + too_much) / 2;
    ASSERT_OK_AND_ASSIGN(const AdmissionReport plan, engine_->PlanScan(large, nullptr));
    (plan.admitted ? fits : too_much) = large.pattern.bscans_per_volume;
  }
  large.pattern.bscans_per_volume = fits;
  EXPECT_THAT(engine_->SubmitScan(large, nullptr), IsOk());
  EXPECT_EQ(Device().cached_bytes, 0);
  EXPECT_LE(Device().used_bytes, budget_);
}

TEST_F(MemoryTest, ACaptureSpillsToDiskAndNothingIsLost) {
  const ScanStatus scan = Finished(Submit(Spec(40, {.mode = RetentionMode::kCapture, .hold_slots = 4, .on_full = OnFull::kSpillDisk})).name);
  EXPECT_EQ(scan.volumes_done, 40);
  EXPECT_EQ(scan.volumes_dropped, 0);
  EXPECT_EQ(scan.volumes_held, 40);
  EXPECT_GE(scan.volumes_spilled, 36);
  // The same scan, all on the device, is the truth.
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
  for (const auto& volume : volumes) ASSERT_THAT(engine_->DiscardVolume(volume.name), IsOk());
  EXPECT_EQ(SpillFiles(), 0) << "discarded files are removed";
  EXPECT_EQ(Use(Tier::kDisk).used_bytes, 0);
  EXPECT_EQ(Device().used_bytes, 0);
}

TEST_F(MemoryTest, AFullTierFallsBackAsTheScanSays) {
  Stop();
  disk_quota_ = 5 * (4096 + 5000);  // four or five files
  Start();
  const ScanStatus stopped = Finished(Submit(Spec(60, {.mode = RetentionMode::kCapture, .hold_slots = 4, .on_full = OnFull::kSpillDisk})).name);
  EXPECT_EQ(stopped.reason_code, "HOLD_SLOTS_FULL");
  EXPECT_NE(stopped.reason.find("the tier DISK is full"), std::string::npos) << stopped.reason;
  EXPECT_GT(stopped.spill_failures, 0);
  EXPECT_LT(stopped.volumes_done, 20);
  EXPECT_EQ(stopped.volumes_held, stopped.volumes_done) << "what was acquired is there";
  for (const auto& volume : Held()) {
    EXPECT_THAT(Bytes_(volume.name), IsOk());
    ASSERT_THAT(engine_->DiscardVolume(volume.name), IsOk());
  }
  const ScanStatus dropped = Finished(
      Submit(Spec(60, {.mode = RetentionMode::kCapture, .hold_slots = 4, .on_full = OnFull::kSpillDisk, .on_tier_full = OnFull::kDropNew})).name);
  EXPECT_EQ(dropped.reason_code, "COMPLETED");
  EXPECT_GT(dropped.volumes_dropped, 40);
  EXPECT_EQ(dropped.volumes_done + dropped.volumes_dropped, 60);
}

TEST_F(MemoryTest, AFullDiskLeavesTheVolumeWhereItIs) {
  Finished(Submit(Spec(1)).name);
  const std::string name = Held()[0].name;
  storage::ArmFailpoint("spill_write:errno=28");
  EXPECT_THAT(Spill(name, Tier::kDisk), IsError(absl::StatusCode::kResourceExhausted, "No space left"));
  const VolumeStatus volume = *engine_->GetVolume(name);
  EXPECT_EQ(volume.tier, Tier::kDevice);
  EXPECT_EQ(volume.moving, "");
  EXPECT_NE(volume.last_error.find("No space left"), std::string::npos);
  EXPECT_EQ(SpillFiles(), 0);
  EXPECT_THAT(Bytes_(name), IsOk());
  EXPECT_THAT(Spill(name, Tier::kDisk), IsOk()) << "the next one works";
}

TEST_F(MemoryTest, TiersThereAndBack) {
  Finished(Submit(Spec(2)).name);
  const VolumeStatus before = Held()[0];
  ASSERT_OK_AND_ASSIGN(const std::string truth, Bytes_(before.name));
  const int64_t used = Device().used_bytes;
  for (const Tier tier : {Tier::kHost, Tier::kDisk, Tier::kHost}) {  // also from one tier to the other
    ASSERT_OK_AND_ASSIGN(const VolumeStatus moved, Spill(before.name, tier));
    EXPECT_EQ(moved.tier, tier);
    EXPECT_EQ(moved.digest, before.digest);
    EXPECT_EQ(moved.state, VolumeState::kHeld);
    // The worker of the reader before may still be letting go of the slot.
    for (int i = 0; i < 1000 && Device().used_bytes >= used; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
  EXPECT_EQ(engine_->GetVolume(before.name)->state, VolumeState::kCommitted);
  EXPECT_EQ(InfoOf(Spill("volumes/none", Tier::kDisk).status()).reason, "NO_VOLUME");
  EXPECT_THAT(Spill(before.name, Tier::kDisk), IsError(absl::StatusCode::kFailedPrecondition, "COMMITTED"));
}

class RestoreTest : public MemoryTest, public ::testing::WithParamInterface<OnFull> {};

TEST_P(RestoreTest, NeedsRoomAndSaysWhoHasItOrMovesAnother) {
  const bool may_move = Spills(GetParam());
  ScanSpec spec = Spec(3, {.mode = RetentionMode::kCapture, .hold_slots = 3, .on_full = GetParam()}), waits = Spec(1);
  spec.acquisition.records_per_block = waits.acquisition.records_per_block = 64;
  waits.source.emplace<PushSource>();  // nobody pushes: it has what it was granted
  waits.acquisition.raw_type_given = true;
  waits.acquisition.record_rate_hz = 0;
  ASSERT_OK_AND_ASSIGN(const AdmissionReport three, engine_->PlanScan(spec, nullptr));
  ASSERT_OK_AND_ASSIGN(const AdmissionReport one, engine_->PlanScan(waits, nullptr));
  Stop();
  // Two volumes, and what the scan that waits needs.
  budget_ = std::max(three.wanted_bytes, one.wanted_bytes + 2 * (three.needs[0].bytes / 3));
  Start();
  Finished(Submit(spec).name);
  const std::string name = Held()[0].name, next = Held()[1].name;
  ASSERT_THAT(Spill(name, Tier::kDisk), IsOk());
  const ScanStatus other = Submit(waits);
  ASSERT_LT(Device().free_bytes, 4096);
  if (may_move) {  // the client chose that volumes move to make room
    ASSERT_THAT(Restore(name), IsOk());
    EXPECT_EQ(engine_->GetVolume(next)->tier, TierOf(GetParam()));
    EXPECT_THAT(Bytes_(next), IsOk());
    return;
  }
  EXPECT_THAT(Restore(name), IsError(absl::StatusCode::kResourceExhausted, "largest holder"));
  EXPECT_EQ(engine_->GetVolume(name)->tier, Tier::kDisk);
  EXPECT_EQ(engine_->GetVolume(name)->moving, "");
  EXPECT_THAT(Bytes_(name), IsOk()) << "still to be read";
  ASSERT_THAT(engine_->CancelScan(other.name), IsOk());
  Finished(other.name);
  EXPECT_THAT(Restore(name), IsOk());
}
INSTANTIATE_TEST_SUITE_P(Policies, RestoreTest, ::testing::Values(OnFull::kStopAtVolume, OnFull::kSpillHost, OnFull::kSpillDisk));

TEST_F(MemoryTest, SpilledFilesAreHeldAgainByTheNextProcess) {
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

TEST_F(MemoryTest, ADamagedSpillFileIsNotTaken) {
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
  EXPECT_EQ(engine_->GetVolume(name)->state, VolumeState::kHeld);
  EXPECT_FALSE(std::filesystem::exists(temp_ / "data/v.npy"));
}

TEST_F(MemoryTest, TimeToLiveWarnsAndThenDiscards) {
  Finished(Submit(Spec(3, {.ttl_seconds = 100, .ttl_warning_seconds = 20})).name);
  const auto volumes = Held();
  ASSERT_EQ(volumes.size(), 3u);
  EXPECT_NEAR(volumes[0].expires_seconds, 100, 1);
  ASSERT_THAT(engine_->HoldVolume(volumes[0].name, false), IsOk());
  EXPECT_EQ(engine_->GetVolume(volumes[0].name)->expires_seconds, 0) << "held: it does not expire";
  ASSERT_THAT(Spill(volumes[1].name, Tier::kDisk), IsOk()) << "another tier does not save it";
  const auto warnings = [&] {
    int64_t n = 0;
    const auto scan = engine_->GetScan(volumes[0].scan);
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
  EXPECT_NE(engine_->GetVolume(volumes[2].name)->reason.find("time to live"), std::string::npos);
  EXPECT_EQ(SpillFiles(), 0);
  EXPECT_EQ(engine_->GetScan(volumes[0].scan)->volumes_expired, 2);
  EXPECT_EQ(engine_->Snapshot().volumes_finished["expired"], 2);
  ASSERT_THAT(engine_->HoldVolume(volumes[0].name, /*release=*/true), IsOk());
  EXPECT_NEAR(engine_->GetVolume(volumes[0].name)->expires_seconds, 100, 1) << "its time begins anew";
}

TEST_F(MemoryTest, ARingKeepsTheLastAndTheMarked) {
  ScanStatus scan = Submit(Spec(0, {.mode = RetentionMode::kLive, .hold_slots = 2, .keep_last = 5}));
  std::set<std::string> marked;
  Until([&] {
    const auto held = Held();
    if (!held.empty() && marked.size() < 2 && engine_->HoldVolume(held.back().name, false).ok()) marked.insert(held.back().name);
    return marked.size() == 2;
  });
  const int64_t done = engine_->GetScan(scan.name)->volumes_done;
  Until([&] { return engine_->GetScan(scan.name)->volumes_done > done + 50; });
  EXPECT_THAT(engine_->HoldVolume(Held().back().name, false), IsError(absl::StatusCode::kResourceExhausted, "2 hold slots"));
  ASSERT_THAT(engine_->StopScan(scan.name), IsOk());
  scan = Finished(scan.name);
  const auto held = Held();
  EXPECT_EQ(held.size(), 7u);
  int64_t last = -1;
  for (const auto& volume : held) last = std::max(last, volume.index);
  for (const auto& volume : held)
    EXPECT_TRUE(volume.marked == (marked.count(volume.name) > 0) && (volume.marked || volume.index > last - 5)) << volume.index;
  EXPECT_EQ(scan.volumes_dropped, 0);
  EXPECT_EQ(scan.volumes_overwritten, scan.volumes_done - 7);
}

TEST_F(MemoryTest, AMarkThatIsTakenBackIsTheRingsAgain) {
  const ScanStatus scan = Submit(Spec(0, {.mode = RetentionMode::kLive, .hold_slots = 1}));
  std::string name;
  Until([&] {
    const auto held = Held();
    if (held.empty() || !engine_->HoldVolume(held.back().name, false).ok()) return false;
    name = held.back().name;
    return true;
  });
  const int64_t done = engine_->GetScan(scan.name)->volumes_done;
  Until([&] { return engine_->GetScan(scan.name)->volumes_done > done + 20; });
  EXPECT_EQ(engine_->GetVolume(name)->state, VolumeState::kHeld);
  ASSERT_THAT(engine_->HoldVolume(name, /*release=*/true), IsOk());
  Until([&] { return engine_->GetVolume(name)->state == VolumeState::kDiscarded; });
}

class OrphanTest : public MemoryTest, public ::testing::WithParamInterface<Orphan> {};

TEST_P(OrphanTest, WhatBecomesOfVolumesWhenTheClientIsGone) {
  const auto client = engine_->OpenSession("microscope");
  ScanSpec spec = Spec(2, {.orphan = GetParam()});
  spec.session = client.session.name;
  Finished(Submit(spec).name);
  Finished(Submit(Spec(1)).name);  // nobody's
  ASSERT_OK_AND_ASSIGN(const auto lease,
                       engine_->leases().TryAcquire({.resource = "buffers/b", .mode = LeaseMode::kExclusive, .session = client.session.name}));
  ASSERT_OK_AND_ASSIGN(const SessionStatus alive, engine_->KeepAlive(client.secret));
  EXPECT_EQ(alive.volumes, 2);
  EXPECT_EQ(alive.leases, 1);
  EXPECT_GE(alive.bytes, 2 * 4096);
  clock_.Advance(59);
  engine_->Housekeep();
  EXPECT_EQ(Held().size(), 3u);
  EXPECT_THAT(engine_->leases().Check("buffers/b", lease.token, 0, LeaseMode::kExclusive), IsOk());
  clock_.Advance(2);
  engine_->Housekeep();
  EXPECT_EQ(InfoOf(engine_->leases().Check("buffers/b", lease.token, 0, LeaseMode::kExclusive).status()).reason, "LEASE_LOST");
  Until([&] { return engine_->Idle(); });
  std::vector<VolumeStatus> mine;
  for (const auto& volume : engine_->ListVolumes()) {
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
  // Whoever has the secret takes up what is left.
  ASSERT_THAT(engine_->KeepAlive(client.secret), IsOk());
  for (const auto& volume : Held()) EXPECT_FALSE(volume.orphaned);
}
INSTANTIATE_TEST_SUITE_P(Policies, OrphanTest, ::testing::Values(Orphan::kKeep, Orphan::kSpillDisk, Orphan::kCommitDefault, Orphan::kDiscard));

TEST_F(MemoryTest, ScratchScansEndWithTheirClient) {
  const auto client = engine_->OpenSession("viewer");
  ScanSpec spec = Spec(0, {.mode = RetentionMode::kLive, .orphan = Orphan::kDiscard});
  spec.session = client.session.name;
  const ScanStatus scan = Submit(spec);
  Until([&] { return engine_->GetScan(scan.name)->volumes_done > 2; });
  ASSERT_THAT(engine_->CloseSession(client.secret), IsOk());
  EXPECT_EQ(Finished(scan.name).reason_code, "SESSION_EXPIRED");
  Until([&] {
    engine_->Housekeep();
    return Held().empty();
  });
}

// The engine never waits for a client: whatever is leased and read, a LIVE scan goes on and its ring turns.
TEST_F(MemoryTest, LeasesAndReadersNeverHoldAScanUp) {
  const ScanStatus scan = Submit(Spec(0, {.mode = RetentionMode::kLive}));
  std::vector<std::shared_ptr<VolumeReader>> readers;
  std::vector<std::string> tokens;
  for (int round = 0; round < 40; ++round) {
    const auto held = Held();
    if (!held.empty()) {
      auto lease = engine_->leases().TryAcquire({.resource = held.back().name, .mode = LeaseMode::kShared});
      ASSERT_THAT(lease, IsOk());
      tokens.push_back(lease->token);
      if (readers.size() < 3) {  // each keeps a slot of the ring's
        if (auto reader = engine_->ReadVolume(held.back().name, {}, {}); reader.ok()) readers.push_back(*reader);
      }
    }
    const int64_t done = engine_->GetScan(scan.name)->volumes_done;
    Until([&] { return engine_->GetScan(scan.name)->volumes_done > done + 1; });
  }
  EXPECT_EQ(engine_->GetScan(scan.name)->state, ScanState::kRunning);
  EXPECT_GT(engine_->GetScan(scan.name)->volumes_overwritten, 30);
  for (const auto& token : tokens) EXPECT_THAT(engine_->leases().Release(token), IsOk());
}

TEST_F(MemoryTest, ALeasedVolumeIsNotDiscardedByOthers) {
  Finished(Submit(Spec(1)).name);
  const std::string name = Held()[0].name;
  ASSERT_OK_AND_ASSIGN(const auto lease,
                       engine_->leases().TryAcquire({.resource = name, .mode = LeaseMode::kShared, .holder = "annotator", .seconds = 5}));
  EXPECT_EQ(engine_->GetVolume(name)->shared_leases, 1);
  const auto refused = engine_->DiscardVolume(name);
  EXPECT_THAT(refused, IsError(absl::StatusCode::kAborted, "leased (SHARED) by annotator"));
  EXPECT_EQ(InfoOf(refused.status()).reason, "LEASED");
  clock_.Advance(6);
  EXPECT_THAT(engine_->DiscardVolume(name), IsOk()) << "it has expired";
  (void)lease;
}

// 500 volumes and a client that never discards: nothing that is held changes, the policy holds, gaps are what was dropped.
class NeverDiscards : public MemoryTest, public ::testing::WithParamInterface<OnFull> {};

TEST_P(NeverDiscards, HeldVolumesStayWhatTheyAre) {
  const ScanStatus scan =
      Finished(Submit(Spec(500, {.mode = RetentionMode::kCapture, .hold_slots = 6, .on_full = GetParam(), .on_tier_full = OnFull::kDropNew})).name);
  std::set<int64_t> indices;
  for (const auto& volume : Held()) {
    indices.insert(volume.index);
    ASSERT_OK_AND_ASSIGN(const std::string bytes, Bytes_(volume.name));
    ASSERT_EQ(absl::StrCat("sum64:", absl::Hex(DigestBytes(bytes.data(), std::ssize(bytes), 0), absl::kZeroPad16)), volume.digest) << volume.index;
  }
  EXPECT_EQ(std::ssize(indices), scan.volumes_held);
  EXPECT_EQ(scan.volumes_discarded + scan.volumes_overwritten, 0);
  switch (GetParam()) {
    case OnFull::kStopAtVolume:
      EXPECT_EQ(scan.reason_code, "HOLD_SLOTS_FULL");
      EXPECT_EQ(scan.volumes_done, 6);
      EXPECT_EQ(scan.volumes_dropped, 0);
      break;
    case OnFull::kDropNew:
      EXPECT_EQ(scan.volumes_done, 6);
      EXPECT_EQ(scan.volumes_dropped, 494);
      break;
    case OnFull::kSpillHost:  // a MiB: 256 of them, and what the slots hold
      EXPECT_EQ(scan.volumes_held, 256 + 6);
      EXPECT_EQ(scan.volumes_dropped, 500 - 262);
      EXPECT_EQ(Use(Tier::kHost).used_bytes, 1 << 20);
      break;
    default: EXPECT_EQ(scan.volumes_held, 500); EXPECT_EQ(scan.volumes_dropped, 0);
  }
  EXPECT_EQ(500 - std::ssize(indices), GetParam() == OnFull::kStopAtVolume ? 494 : scan.volumes_dropped);
}
INSTANTIATE_TEST_SUITE_P(Policies, NeverDiscards, ::testing::Values(OnFull::kStopAtVolume, OnFull::kDropNew, OnFull::kSpillHost, OnFull::kSpillDisk));

TEST_F(MemoryTest, ATierThatIsOffIsRefusedBeforeTheFirstRecord) {
  Stop();
  host_quota_ = disk_quota_ = 0;
  Start();
  for (const OnFull on_full : {OnFull::kSpillHost, OnFull::kSpillDisk}) {
    const auto refused = engine_->SubmitScan(Spec(9, {.hold_slots = 4, .on_full = on_full}), nullptr);
    EXPECT_THAT(refused, IsError(absl::StatusCode::kFailedPrecondition, "retention.on_full: the tier"));
    EXPECT_EQ(InfoOf(refused.status()).reason, "SPILL_OFF");
    EXPECT_EQ(engine_->PlanScan(Spec(9, {.hold_slots = 4, .on_full = on_full}), nullptr).status(), refused.status());
  }
  EXPECT_TRUE(engine_->ListScans().empty());
}

TEST_F(MemoryTest, RetentionIsChecked) {
  const auto refused = [&](Retention retention, const char* field) {
    const auto scan = engine_->SubmitScan(Spec(3, retention), nullptr);
    EXPECT_EQ(scan.status().code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(InfoOf(scan.status()).field, field) << scan.status();
  };
  refused({.ttl_seconds = 0.5}, "retention.ttl_seconds");
  refused({.ttl_seconds = -1}, "retention.ttl_seconds");
  refused({.ttl_seconds = std::numeric_limits<double>::quiet_NaN()}, "retention.ttl_seconds");
  refused({.ttl_seconds = 10, .ttl_warning_seconds = 6}, "retention.ttl_warning_seconds");
  refused({.ttl_warning_seconds = 1}, "retention.ttl_warning_seconds");
  refused({.keep_last = 3}, "retention.keep_last");
  refused({.on_full = OnFull::kSpillDisk, .on_tier_full = OnFull::kSpillHost}, "retention.on_tier_full");
  refused({.orphan = Orphan::kDiscard}, "retention.orphan");
  refused({.mode = RetentionMode::kLive, .disposition = Disposition::kAutoDiscard, .keep_last = 3}, "retention.keep_last");
  EXPECT_EQ(Device().used_bytes, 0);
}

}  // namespace
}  // namespace octavo::engine
