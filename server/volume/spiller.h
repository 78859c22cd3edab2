#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "gpu/device/device.h"
#include "server/base/worker_pool.h"
#include "server/memory/device_set.h"
#include "server/memory/frame_pool.h"
#include "server/memory/ledger.h"
#include "server/model/stats.h"
#include "server/volume/spill_tiers.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

/// Moves held volumes from device memory to host memory or disk and back, beside everything else:
/// copies run on streams of low priority and threads of their own, digests are checked on the way.
/// A failed move leaves the volume where it was. Thread-safe.
class Spiller {
 public:
  struct Context {
    VolumeStore* volumes = nullptr;
    memory::Ledger* ledger = nullptr;
    const Clock* clock = nullptr;
    memory::DeviceSet devices;               // their pools are for slabs on their way
    storage::SpillFolder* folder = nullptr;  // null = no tier DISK
    int64_t host_bytes = 0;                  // 0 = no tier HOST
    /// What the files are to say of the volume, for a later process.
    std::function<storage::VolumeMeta(const model::VolumeStatus&)> meta_of;
  };
  Spiller(Context context, int threads);
  ~Spiller();

  /// Whether volumes can be moved there at all. FailedPrecondition (SPILL_OFF) names the
  /// configuration key.
  absl::Status CheckTier(model::Tier tier) const { return tiers_.Check(tier); }
  /// Bytes that still fit into the tier; 0 if it is off.
  int64_t FreeOf(model::Tier tier) const { return tiers_.FreeOf(tier); }

  /// For a running scan: begins to move its oldest held volume that no process maps, unless one is
  /// on its way already. Whether one is on its way now. Never waits.
  bool Request(const std::string& scan, model::Tier tier);
  bool PendingOf(const std::string& scan);
  /// Moves of this scan's volumes that did not work.
  int64_t FailuresOf(const std::string& scan);
  /// The scan is no longer listed: its failures need not be known.
  void ForgetScan(const std::string& scan);

  using Done = std::function<void(absl::StatusOr<model::VolumeStatus>)>;
  /// `done` is called exactly once, from a thread of the spiller or at once with what can be told
  /// at once. `asked`: by a client (VolumeTiers::BeginSpill).
  void Spill(const std::string& name, model::Tier tier, Done done,
             const ClientVerb* asked = nullptr);
  void Restore(const std::string& name, Done done);
  /// Copies a volume into a slot of its own, beside the one it has, which somebody does not give
  /// back. `done` is called exactly once: OK when the volume has moved; ResourceExhausted
  /// (DEVICE_FULL), DataLoss (DIGEST: whoever has the slot has written to it) and the errors of
  /// VolumeTiers::BeginRelocate, all of which leave it where it is.
  void Relocate(const std::string& name, std::function<void(const absl::Status&)> done);
  /// As Restore, on the calling thread: for workers that need the volume on its device.
  absl::StatusOr<model::VolumeStatus> RestoreNow(const std::string& name);

  /// A volume that is made on disk, front to back, without ever being on a device as a whole.
  /// Destroyed unfinished it leaves nothing.
  class Storing {
   public:
    virtual ~Storing() = default;
    virtual absl::Status Append(const void* data, int64_t bytes) = 0;
    /// Makes it durable; sets the volume's digest, which the file carries too.
    virtual absl::StatusOr<std::shared_ptr<const SpilledVolume>> Finish(
        model::VolumeStatus* volume) = 0;
  };
  /// Takes the room. FailedPrecondition (SPILL_OFF), ResourceExhausted (SPILL_QUOTA, DISK_FULL).
  absl::StatusOr<std::unique_ptr<Storing>> BeginStoring(const model::VolumeStatus& volume);

  /// Lists what an earlier process left in the spill directory as held volumes. Once, at the start.
  /// Returns a line for each.
  std::vector<std::string> Recover(std::vector<storage::SpillFolder::Found> found);

  int Pending() { return pool_.Pending(); }
  std::vector<model::TierUse> Uses();
  void AddTo(model::Stats* stats);

 private:
  class StoringOnDisk;
  /// CopyTo, counted and timed.
  absl::StatusOr<std::shared_ptr<const SpilledVolume>> Move(const VolumeHold& hold,
                                                            model::Tier tier);
  /// Copies the bytes into the tier, checked against the digest.
  absl::StatusOr<std::shared_ptr<const SpilledVolume>> CopyTo(model::Tier tier,
                                                              const VolumeHold& hold);
  /// Hands the bytes of `hold` piece by piece, in order, to `take`.
  absl::Status ForEachPiece(
      const VolumeHold& hold,
      const std::function<absl::Status(const void*, int64_t offset, int64_t bytes)>& take);
  absl::StatusOr<std::shared_ptr<memory::VolumeSlot>> MoveToDevice(const VolumeHold& hold);
  absl::Status RunSpill(VolumeHold hold, model::Tier tier);

  const Context context_;
  SpillTiers tiers_;
  Mutex mutex_;
  std::set<std::string> pending_ ABSL_GUARDED_BY(mutex_);  // scans of which a volume is on its way
  std::map<std::string, int64_t> failures_ ABSL_GUARDED_BY(mutex_);  // by scan
  std::map<model::Tier, model::TierUse> totals_
      ABSL_GUARDED_BY(mutex_);  // spilled, restored, failures
  std::map<model::Tier, model::Histogram> spill_seconds_ ABSL_GUARDED_BY(mutex_), restore_seconds_
      ABSL_GUARDED_BY(mutex_);
  base::WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace octavo::volume
