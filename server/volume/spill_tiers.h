#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/memory/device_set.h"
#include "server/memory/frame_pool.h"
#include "server/model/status_types.h"
#include "server/storage/spill/spill_folder.h"
#include "server/volume/spilled_volume.h"

namespace octavo::volume {

/// The tiers off the device, HOST (page-locked memory) and DISK (a folder of private files): their
/// free room, and writers that put volumes into them. Thread-safe.
class SpillTiers {
 public:
  struct Context {
    memory::DeviceSet devices;               // whose page-locked memory is used
    int64_t host_bytes = 0;                  // 0 = no tier HOST
    storage::SpillFolder* folder = nullptr;  // null = no tier DISK
    /// The metadata that the files carry for a later process.
    std::function<storage::VolumeMeta(const model::VolumeStatus&)> meta_of;
  };
  explicit SpillTiers(Context context);
  ~SpillTiers();

  /// Whether the tier accepts volumes at all. FailedPrecondition (SPILL_OFF) names the
  /// configuration key.
  absl::Status Check(model::Tier tier) const;
  /// Bytes that still fit into the tier; 0 if it is off.
  int64_t FreeOf(model::Tier tier) const;
  /// Quota and use, without the counts of moved volumes.
  model::TierUse UseOf(model::Tier tier) const;

  /// Writes one volume from front to back. A writer destroyed before Finish leaves nothing behind.
  class Writer {
   public:
    virtual ~Writer() = default;
    virtual absl::Status Append(const void* data, int64_t bytes) = 0;
    /// Replaces the description that Begin received with the current one.
    virtual void Describe(const model::VolumeStatus& volume) = 0;
    /// The volume may leave while it is written: Finish passes through the gate, Cancelled if it is
    /// shut.
    virtual void SetGate(std::shared_ptr<storage::SpillGate> gate) = 0;
    virtual absl::StatusOr<std::shared_ptr<const SpilledVolume>> Finish() = 0;
  };
  /// What a file of the volume would take of the quota of the tier DISK.
  int64_t DiskBytesOf(const model::VolumeStatus& volume) const;
  /// Reserves the room and returns a writer. ResourceExhausted (SPILL_QUOTA, DISK_FULL,
  /// OUT_OF_MEMORY). `device`: HOST memory is registered with it.
  absl::StatusOr<std::unique_ptr<Writer>> Begin(model::Tier tier, const model::VolumeStatus& volume,
                                                int device);
  /// Takes over a file that an earlier process left.
  static std::shared_ptr<const SpilledVolume> Adopt(std::shared_ptr<storage::SpillFile> file);

 private:
  class HostVolume;
  class HostWriter;
  class DiskVolume;
  class DiskWriter;
  absl::StatusOr<std::unique_ptr<Writer>> BeginOnHost(int64_t bytes, int device);

  const Context context_;
  std::vector<std::shared_ptr<memory::FramePool>> host_pools_;  // by device
  /// Bytes of the tier HOST in use; the last volume in the tier keeps the counter alive.
  const std::shared_ptr<std::atomic<int64_t>> host_used_ =
      std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace octavo::volume
