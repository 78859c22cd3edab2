#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
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
#include "server/model/work_progress.h"
#include "server/volume/spill_tiers.h"
#include "server/volume/spilled_volume.h"
#include "server/volume/volume_mirroring.h"
#include "server/volume/volume_move.h"
#include "server/volume/volume_store.h"

namespace octavo::volume {

/// Moves held volumes from device memory to host memory or disk and back, concurrently with all
/// other work: copies run on streams of low priority and on threads of their own. The spiller
/// checks digests on the way. A failed move leaves the volume where it was. A spill to DISK that
/// finds no room drops mirrors until it has it; one of a mirrored volume copies nothing.
/// Thread-safe.
class Spiller {
 public:
  struct Context {
    VolumeStore* volumes = nullptr;
    memory::Ledger* ledger = nullptr;
    const Clock* clock = nullptr;
    memory::DeviceSet devices;               // their pools hold slabs in transit
    storage::SpillFolder* folder = nullptr;  // null = no tier DISK
    int64_t host_bytes = 0;                  // 0 = no tier HOST
    /// The metadata that the files carry for a later process.
    std::function<storage::VolumeMeta(const model::VolumeStatus&)> meta_of;
  };
  Spiller(Context context, int threads);
  ~Spiller();

  /// Whether the tier accepts volumes at all. FailedPrecondition (SPILL_OFF) names the
  /// configuration key.
  absl::Status CheckTier(model::Tier tier) const { return tiers_.Check(tier); }
  /// Bytes that still fit into the tier, mirrors being dropped for them; 0 if it is off.
  int64_t FreeOf(model::Tier tier);
  /// As FreeOf for one more mirror in the tier DISK, which drops none, and leaves room on the disk
  /// for others who write to it.
  int64_t FreeForMirrors() const;

  /// For a running scan: starts moving its oldest held volume that no process maps, unless a move
  /// is already in progress. Returns whether a move is in progress now. Never waits.
  bool Request(const std::string& scan, model::Tier tier);
  bool PendingOf(const std::string& scan);
  /// The number of failed moves of this scan's volumes.
  int64_t FailuresOf(const std::string& scan);
  /// The scan is no longer listed: drops its count of failures.
  void ForgetScan(const std::string& scan);

  using Done = std::function<void(absl::StatusOr<model::VolumeStatus>)>;
  /// Errors known at once are returned, and nothing has changed; otherwise `done` is called once:
  /// from a thread of the spiller, or on the calling thread if the volume is there already. A stop
  /// that is requested through `control` ends the move (CANCELLED): the volume stays where it is.
  /// `asked`: set if a client asks (VolumeTiers::BeginSpill).
  absl::Status Spill(const std::string& name, model::Tier tier, model::WorkControl control,
                     Done done, const ClientVerb* asked = nullptr);
  absl::Status Restore(const std::string& name, model::WorkControl control, Done done,
                       const ClientVerb* asked = nullptr);
  /// Copies a volume into a new slot, because another process does not give back the present one.
  /// `done` is called exactly once: OK when the volume has moved. ResourceExhausted (DEVICE_FULL),
  /// DataLoss (DIGEST: the process that maps the slot has written to it) and the errors of
  /// VolumeTiers::BeginRelocate leave the volume where it is.
  void Relocate(const std::string& name, std::function<void(const absl::Status&)> done);
  /// As Restore, on the calling thread, for workers that need the volume on its device.
  absl::StatusOr<model::VolumeStatus> RestoreNow(const std::string& name);
  /// For a volume that a job has just made: takes the room in the tier on the calling thread, and
  /// copies on one of the spiller's. ResourceExhausted (SPILL_QUOTA, DISK_FULL, OUT_OF_MEMORY) and
  /// other errors leave the volume where it is; its last_error says so, too.
  absl::Status SpillResult(const std::string& name, model::Tier tier);

  /// Copies a volume into the tier DISK and leaves its bytes where they are. On the calling thread.
  /// `wait` is called before each piece, and returns when that may be copied: true, or false to
  /// give up. It asks `stopped` whether the copy is still wanted. Cancelled if it gave up, the
  /// volume has left or is spilled, a spill needs the room, or the server drains: no failure. Other
  /// errors count as failures.
  absl::Status Mirror(VolumeMirroring mirroring,
                      const std::function<bool(const std::function<bool()>& stopped)>& wait);
  /// Whether a volume is being moved, or a job's result is being written to the disk.
  bool Busy() { return Pending() > 0 || on_callers_ > 0; }
  /// From now on no mirror is made, and none is dropped: each keeps its volume when the server
  /// ends.
  void BeginDrain();

  /// Writes a new volume to disk from front to back; the volume is never on a device as a whole. If
  /// destroyed before Finish, it leaves nothing behind.
  class Storing {
   public:
    virtual ~Storing() = default;
    virtual absl::Status Append(const void* data, int64_t bytes) = 0;
    /// Makes the volume durable and sets its digest, which the file carries too.
    virtual absl::StatusOr<std::shared_ptr<const SpilledVolume>> Finish(
        model::VolumeStatus* volume) = 0;
  };
  /// Reserves the room. FailedPrecondition (SPILL_OFF), ResourceExhausted (SPILL_QUOTA, DISK_FULL).
  absl::StatusOr<std::unique_ptr<Storing>> BeginStoring(const model::VolumeStatus& volume);

  /// Lists the volumes that an earlier process left in the spill directory as held. Call once, at
  /// the start. Returns one log line for each.
  std::vector<std::string> Recover(std::vector<storage::SpillFolder::Found> found);

  int Pending() { return pool_.Pending(); }
  std::vector<model::TierUse> Uses();
  void AddTo(model::Stats* stats);

 private:
  class StoringOnDisk;
  /// Runs `work` with the move on a thread of the spiller. If it cannot, the move fails with the
  /// returned status.
  absl::Status Post(VolumeMove move, std::function<void(VolumeMove)> work);
  using Writer = std::unique_ptr<SpillTiers::Writer>;
  /// Takes the room in the tier, if need be from mirrors.
  absl::StatusOr<Writer> BeginWriter(model::Tier tier, const model::VolumeStatus& volume,
                                     int device);
  /// Stops the mirroring that is under way, and waits for its end. `volume`: only if it is of this
  /// one; empty = in any case.
  void EndMirroring(const std::string& volume);
  /// Copies the bytes into the tier, through `writer` if there is one already; counts and times the
  /// move. Of a mirrored volume the mirror is the copy in the tier DISK.
  absl::StatusOr<VolumeBytes> CopyOut(const VolumeMove& move, model::Tier tier, Writer writer,
                                      const model::WorkControl& control);
  /// Copies the bytes and checks them against the digest. The writer is still to be finished.
  absl::Status CopyInto(SpillTiers::Writer& writer, const VolumeHold& hold,
                        const std::shared_ptr<storage::SpillGate>& gate,
                        const model::WorkControl& control);
  /// Passes the bytes of `hold` to `take`, piece by piece and in order.
  absl::Status ForEachPiece(
      const VolumeHold& hold, const model::WorkControl& control,
      const std::function<absl::Status(const void*, int64_t offset, int64_t bytes)>& take);
  /// Copies the bytes into a new slot on their device and checks them against the digest. The
  /// volume's owner pays for it: within its quota, unless the server moves the volume by itself.
  enum class Why : uint8_t { kRestored, kRelocated };
  absl::StatusOr<VolumeBytes> CopyToDevice(const VolumeHold& hold,
                                           const model::WorkControl& control,
                                           Why why = Why::kRestored);
  absl::Status RunSpill(VolumeMove move, model::Tier tier, Writer writer,
                        const model::WorkControl& control);
  absl::StatusOr<model::VolumeStatus> RunRestore(VolumeMove move,
                                                 const model::WorkControl& control);

  const Context context_;
  SpillTiers tiers_;
  std::atomic<int> on_callers_{0};  // restores and stored results, not on threads of the pool
  std::atomic<bool> draining_{false};
  Mutex mutex_;
  struct MirrorRun {
    std::string volume;
    std::stop_source stop;
  };
  std::shared_ptr<MirrorRun> mirror_run_ ABSL_GUARDED_BY(mutex_);  // null: none is under way
  CondVar mirror_run_ended_;
  int64_t mirror_failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> pending_ ABSL_GUARDED_BY(mutex_);  // scans with a volume in transit
  std::map<std::string, int64_t> failures_ ABSL_GUARDED_BY(mutex_);  // by scan
  std::map<model::Tier, model::TierUse> totals_
      ABSL_GUARDED_BY(mutex_);  // spilled, restored, failures
  std::map<model::Tier, model::Histogram> spill_seconds_ ABSL_GUARDED_BY(mutex_), restore_seconds_
      ABSL_GUARDED_BY(mutex_);
  base::WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace octavo::volume
