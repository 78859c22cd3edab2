#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "server/memory/volume_slot.h"
#include "server/model/scan_spec.h"
#include "server/model/status_types.h"
#include "server/scan/completion.h"
#include "server/scan/scan_observer.h"
#include "server/volume/committer.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// Who frees slots of a scan beside its own retention, by name of the scan.
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

/// The server's: its spiller and its committer, which must outlive this.
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

/// What becomes of the slots and volumes of a scan, by its Retention: which slot the next volume
/// takes (a free one, one that is overwritten, spilled, or waited for, or none), whether the scan
/// ends for want of one, and what is done with a volume once it is held.
class RetentionPolicy {
 public:
  struct Context {
    std::string scan;
    volume::VolumeStore* store = nullptr;
    SlotRelief* relief = nullptr;
    ScanObserver* observer = nullptr;
    bool source_waits = false;               // without loss, while no slot is free
    std::function<double()> ring_occupancy;  // of the ring before the compute thread, 0 ... 1
    /// Whether a slot may come back by itself: of a volume behind the device, or of one that is
    /// still copied for subscribers.
    std::function<bool()> slots_return;
    std::stop_token aborted;  // nothing is waited for any more
  };
  /// `slots`: how many the scan has.
  RetentionPolicy(const model::Retention& retention, int64_t slots, Context context);

  // -- compute thread
  /// A slot for the next volume; null: there is none for it.
  std::shared_ptr<memory::VolumeSlot> TakeSlot(memory::SlotPool& pool);
  /// Why a scan that got no slot ends with that; nothing: the volume is dropped and the scan goes
  /// on.
  std::optional<std::string> EndOfScan();

  // -- retire thread
  /// The volume is there: held from now on, with its raw records.
  void Seal(const ActiveVolume& volume);
  /// Subscribers have been told of the volume: discards it, or asks for its commit, as the
  /// retention says; and moves one away where the next volumes will want its slot.
  /// `volumes_to_come`: after those that have begun, as far as that is known; < 0: without end.
  void Dispose(const ActiveVolume& volume, memory::SlotPool& pool, int64_t volumes_to_come);

 private:
  const model::Retention retention_;
  const int64_t slots_;
  const Context context_;
};

}  // namespace octavo::scan
