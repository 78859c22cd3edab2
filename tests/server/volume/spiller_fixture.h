#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

#include "gpu/backend/open_devices.h"
#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "gpu/device/digest.h"
#include "server/volume/spiller.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rooms.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace octavo::engine {

using octavo::testing::FakeClock;
using octavo::testing::TempFolder;

/// A spiller with a small tier DISK, for the tests of moves and of mirrors.
class SpillerFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kVolumeBytes = 4096;

  explicit SpillerFixture(int64_t disk_bytes = 1 << 20, int64_t host_bytes = 1) {
    folder_ = storage::SpillFolder::Open(temp_ / "spill", disk_bytes, &found_, &report_).value();
    device_ = std::move(OpenDevices("host").value().devices[0]);
    frames_ = std::make_shared<FramePool>(device_.get(), 16 << 20);
    spiller_ = std::make_unique<Spiller>(
        Spiller::Context{.volumes = &volumes_,
                         .ledger = &ledger_,
                         .clock = &clock_,
                         .devices = DeviceSet({{device_.get(), frames_}}),
                         .folder = folder_.get(),
                         .host_bytes = host_bytes,
                         .meta_of = [this](const VolumeStatus& v) { return Meta(v); }},
        1);
  }
  ~SpillerFixture() override { ArmFailpoint(""); }
  storage::VolumeMeta Meta(const VolumeStatus& volume) {
    if (fail_) throw std::bad_alloc();
    if (on_meta_) on_meta_();
    return {.volume_name = volume.name,
            .scan_name = volume.scan,
            .shape = {16, 16, 16},
            .dtype = volume.dtype,
            .digest = volume.digest};
  }
  void Hold(const std::string& name, const std::string& scan, bool kept = true, double ttl = 0) {
    auto slot = std::make_shared<VolumeSlot>();
    slot->volume = device_->Allocate(kVolumeBytes).value();
    slot->charge =
        ledger_
            .Reserve(0, scan, "",
                     {{.kind = model::NeedKind::kVolumeSlots, .bytes = 10, .count = 1}}, nullptr)
            .value()[0];
    VolumeStatus status;
    status.name = name;
    status.scan = scan;
    status.dtype = DType::kU8;
    status.shape[0] = status.shape[1] = status.shape[2] = 16;
    status.bytes = kVolumeBytes;
    status.ttl_seconds = ttl;
    status.digest =
        absl::StrFormat("sum64:%016x", DigestBytes(slot->volume.data(), kVolumeBytes, 0));
    volumes_.Add(status, slot, 0);
    volumes_.Seal(status, kept);
  }
  absl::StatusOr<VolumeStatus> Spill(const std::string& name, Tier tier, WorkControl control = {}) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    OCTAVO_RETURN_IF_ERROR(spiller_->Spill(
        name, tier, std::move(control),
        [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); }));
    return promise.get_future().get();
  }
  absl::StatusOr<VolumeStatus> Restore(const std::string& name, WorkControl control = {}) {
    std::promise<absl::StatusOr<VolumeStatus>> promise;
    OCTAVO_RETURN_IF_ERROR(spiller_->Restore(
        name, std::move(control),
        [&](absl::StatusOr<VolumeStatus> volume) { promise.set_value(std::move(volume)); }));
    return promise.get_future().get();
  }

  TempFolder temp_;
  FakeClock clock_;
  Ledger ledger_{{1 << 20}};
  VolumeStore volumes_{&ledger_, &clock_};
  std::vector<storage::SpillFolder::Found> found_;
  std::vector<std::string> report_;
  std::unique_ptr<storage::SpillFolder> folder_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<FramePool> frames_;
  std::atomic<bool> fail_{false};
  std::function<void()> on_meta_;
  std::unique_ptr<Spiller> spiller_;  // last: its threads use the rest
};

}  // namespace octavo::engine
