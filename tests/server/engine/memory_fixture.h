#pragma once

// An engine with little memory, spill tiers, and a clock that the test controls.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/allocation_fault.h"
#include "gpu/base/failpoint.h"
#include "gpu/device/device.h"
#include "gpu/device/digest.h"
#include "server/engine/engine.h"
#include "server/storage/commit/commit_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine::testing {

using octavo::testing::FakeClock;
using octavo::testing::TempFolder;

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }
  void TearDown() override {
    AllocationFault::Arm(0);
    ArmFailpoint("");
    Stop();
  }

  void Start() {
    std::vector<std::string> report;
    ASSERT_OK_AND_ASSIGN(store_,
                         storage::CommitStore::Open(temp_ / "state", {temp_ / "data"}, &report));
    config_.spilled.clear();
    ASSERT_OK_AND_ASSIGN(spill_, storage::SpillFolder::Open(temp_ / "spill", disk_quota_,
                                                            &config_.spilled, &report));
    ASSERT_OK_AND_ASSIGN(OpenedDevices opened,
                         OpenDevices(backend_, host_devices_, config_.host_for_jobs));
    devices_.clear();
    for (const auto& device : opened.devices) devices_.push_back(device.get());
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

  /// 16 × 8 A-scans of 32 depths, U8: volumes of 4096 bytes, acquired as fast as possible.
  ScanSpec Spec(int64_t volumes, Retention retention = {}) {
    ScanSpec spec;
    auto& source = spec.source.emplace<SimulatedSource>();
    source.as_fast_as_possible = true;
    source.seed = 7;
    spec.acquisition.samples_per_record = 64;
    spec.pattern.ascans_per_bscan = 16;
    spec.pattern.bscans_per_volume = 8;
    spec.pattern.volumes = volumes;
    spec.processing.dtype = DType::kU8;
    spec.processing.dtype_given = true;
    spec.retention = retention;
    return spec;
  }
  ScanStatus Submit(const ScanSpec& spec) {
    auto scan = engine_->scans().Submit(spec, nullptr);
    EXPECT_THAT(scan, octavo::testing::IsOk());
    return scan.ok() ? *scan : ScanStatus{};
  }
  /// Waits until `done` returns true. If it never does, the test's own time-out ends the wait.
  template <class F>
  void Until(F done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ScanStatus Finished(const std::string& name) {
    Until([&] { return IsFinal(engine_->scans().Get(name)->state); });
    return *engine_->scans().Get(name);
  }
  std::vector<VolumeStatus> Held() {
    auto volumes = engine_->volumes().List();
    std::erase_if(volumes, [](const VolumeStatus& v) { return v.state != VolumeState::kHeld; });
    return volumes;
  }
  absl::StatusOr<std::string> Bytes_(const std::string& name, std::vector<int64_t> start = {},
                                     std::vector<int64_t> count = {}) {
    OCTAVO_ASSIGN_OR_RETURN(
        auto reader, engine_->volumes().Read({.volume = name, .start = start, .count = count}));
    std::string all;
    for (;;) {
      std::promise<absl::StatusOr<Bytes>> promise;
      reader->Next(64 << 10,
                   [&](absl::StatusOr<Bytes> piece) { promise.set_value(std::move(piece)); });
      OCTAVO_ASSIGN_OR_RETURN(const Bytes piece, promise.get_future().get());
      if (piece.size == 0) return all;
      all.append(static_cast<const char*>(piece.data), static_cast<size_t>(piece.size));
    }
  }
  /// Waits for the end of an operation: as it is then, or its error.
  absl::StatusOr<OperationStatus> Ended(const absl::StatusOr<std::string>& operation) {
    OCTAVO_RETURN_IF_ERROR(operation.status());
    std::promise<absl::StatusOr<OperationStatus>> promise;
    engine_->operations().Wait(
        *operation, std::nullopt,
        [&](const absl::StatusOr<OperationStatus>& end) { promise.set_value(end); },
        [] { return false; });
    OCTAVO_ASSIGN_OR_RETURN(OperationStatus end, promise.get_future().get());
    OCTAVO_RETURN_IF_ERROR(end.error);
    return end;
  }
  absl::StatusOr<VolumeStatus> Spill(const std::string& name, Tier tier) {
    OCTAVO_RETURN_IF_ERROR(Ended(engine_->volumes().Spill(name, tier)).status());
    return engine_->volumes().Get(name);
  }
  absl::StatusOr<VolumeStatus> Restore(const std::string& name) {
    OCTAVO_RETURN_IF_ERROR(Ended(engine_->volumes().Restore(name)).status());
    return engine_->volumes().Get(name);
  }
  /// The name of the operation, when the work is planned.
  absl::StatusOr<std::string> BeginDerive(const DeriveSpec& spec, const RequestKey& request = {}) {
    std::promise<absl::StatusOr<std::string>> promise;
    engine_->volumes().Derive(spec, request,
                              [&](absl::StatusOr<std::string> begun) { promise.set_value(begun); });
    return promise.get_future().get();
  }
  absl::StatusOr<VolumeStatus> Derive(const DeriveSpec& spec, const RequestKey& request = {}) {
    OCTAVO_ASSIGN_OR_RETURN(const OperationStatus end, Ended(BeginDerive(spec, request)));
    return engine_->volumes().Get(end.volumes.at(0));
  }
  absl::StatusOr<storage::CommitOutcome> Commit(const std::string& name,
                                                const std::string& destination) {
    OCTAVO_ASSIGN_OR_RETURN(const OperationStatus end,
                            Ended(engine_->volumes().Commit(name, To(destination))));
    return end.commit.value();
  }
  static CommitOptions To(const std::string& destination) {
    CommitOptions options{.destination = destination};
    options.writer.format = storage::Format::kNpy;
    return options;
  }
  DeviceStatus Device() { return engine_->devices().List()[0]; }
  TierUse Use(Tier tier) {
    for (const TierUse& use : engine_->devices().GetMemory().tiers) {
      if (use.tier == tier) return use;
    }
    return {};
  }
  int64_t SpillFiles() {
    int64_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(temp_ / "spill"))
      files += entry.is_regular_file();
    return files;
  }

  TempFolder temp_;
  FakeClock clock_;
  EngineConfig config_;
  std::string backend_ = "host";
  int host_devices_ = 1;
  std::vector<octavo::Device*> devices_;  // the engine's
  int64_t budget_ = 64 << 20, disk_quota_ = 64 << 20, host_quota_ = 1 << 20;
  std::unique_ptr<storage::CommitStore> store_;
  std::unique_ptr<storage::SpillFolder> spill_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace octavo::engine::testing
