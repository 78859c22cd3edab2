#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "server/memory/volume_slot.h"
#include "server/model/scan_spec.h"
#include "server/model/status_types.h"
#include "server/publish/topic.h"
#include "server/scan/completion.h"
#include "server/scan/scan_observer.h"
#include "server/volume/committer.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// Ways other than the scan's own retention to free its slots. Scans are identified by name.
class SlotRelief {
 public:
  virtual ~SlotRelief() = default;
  /// As volume::Spiller::Request.
  virtual bool Spill(const std::string& scan, model::Tier tier) = 0;
  /// As volume::Spiller::FailuresOf.
  virtual int64_t SpillFailures(const std::string& scan) = 0;
  /// As volume::Committer::PendingOf.
  virtual bool CommitsPending(const std::string& scan) = 0;
};

/// The server's implementation, using its spiller and its committer; both must outlive this object.
class StorageRelief final : public SlotRelief {
 public:
  StorageRelief(volume::Spiller* spiller, volume::Committer* committer)
      : spiller_(spiller), committer_(committer) {}
  bool Spill(const std::string& scan, model::Tier tier) override {
    return spiller_->Request(scan, tier);
  }
  int64_t SpillFailures(const std::string& scan) override { return spiller_->FailuresOf(scan); }
  bool CommitsPending(const std::string& scan) override { return committer_->PendingOf(scan); }

 private:
  volume::Spiller* const spiller_;
  volume::Committer* const committer_;
};

/// How long the volumes of a scan with this retention can be read once they are complete.
publish::VolumesStay StayOf(const model::Retention& retention);

/// Applies a scan's Retention to its slots and volumes. Decides which slot the next volume takes: a
/// free slot, an overwritten one, one freed by a spill, one that it waits for, or none. Decides
/// also whether the scan ends for want of a slot, and how a held volume is handled.
class RetentionPolicy {
 public:
  struct Context {
    std::string scan;
    volume::VolumeStore* store = nullptr;
    SlotRelief* relief = nullptr;
    ScanObserver* observer = nullptr;
    bool source_waits = false;               // waits without loss while no slot is free
    std::function<double()> ring_occupancy;  // of the ring before the compute thread, 0 ... 1
    /// Whether a slot may become free without further action: its volume is still on the device, or
    /// is still being copied for subscribers.
    std::function<bool()> slots_return;
    std::stop_token aborted;  // ends every wait
  };
  /// `slots`: the scan's number of slots.
  RetentionPolicy(const model::Retention& retention, int64_t slots, Context context);

  // -- compute thread
  /// Returns a slot for the next volume, or null if there is none.
  std::shared_ptr<memory::VolumeSlot> TakeSlot(memory::SlotPool& pool);
  /// Reason to end a scan that got no slot. Empty: the volume is dropped and the scan continues.
  std::optional<std::string> EndOfScan();

  // -- retire thread
  /// Seals the volume: it is held from now on, together with its raw records.
  struct Sealed {
    volume::UntoldSeal raw, volume;  // the last one is told first
  };
  Sealed Seal(const ActiveVolume& volume);
  /// Call after subscribers have been notified of the volume. Gives up what is older than the
  /// newest ones that are kept. Discards it or requests its commit, as the retention demands. Also
  /// moves a volume away if the next volumes will need its slot. `volumes_to_come` tells how many
  /// volumes are expected after those already begun; < 0: no end known. It is asked after the free
  /// slots are counted: a volume that takes its slot meanwhile must not be counted twice.
  void Dispose(const ActiveVolume& volume, memory::SlotPool& pool,
               const std::function<int64_t()>& volumes_to_come);

 private:
  const model::Retention retention_;
  const int64_t slots_;
  const Context context_;
};

}  // namespace octavo::scan
