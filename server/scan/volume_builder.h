#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"
#include "server/processing/first_records.h"
#include "server/processing/raw_records.h"
#include "server/scan/completion.h"
#include "server/scan/device_lanes.h"
#include "server/scan/processing_updates.h"
#include "server/scan/retention_policy.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_lifecycle.h"
#include "server/scan/scan_memory.h"
#include "server/scan/scan_progress.h"
#include "server/source/source.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// Begins and ends the volumes of a scan. At the beginning: takes a slot, writes the description
/// and applies pending processing updates. In between: tracks which A-scans arrived. At the end:
/// completes the volume and reports its missing A-scans. Also decides which volume is the scan's
/// last. Compute thread.
class VolumeBuilder {
 public:
  struct Context {
    std::string scan, server_id;
    int device_index = 0;  // of the home device
    volume::VolumeStore* store = nullptr;
    ScanMemory* memory = nullptr;
    ProcessingUpdates* updates = nullptr;
    RetentionPolicy* retention = nullptr;
    ScanEvents* events = nullptr;
    ScanProgress* progress = nullptr;
    ScanLifecycle* life = nullptr;
  };
  /// `scan`: applies to the volume being acquired; the builder replaces it between two volumes when
  /// there is an update. All arguments must outlive this object.
  VolumeBuilder(model::ResolvedScan* scan, DeviceLanes* lanes, Context context);
  absl::Status Allocate();
  void Free() { recorder_ = nullptr; }
  void LetGo() { origin_ = nullptr; }

  /// The volume being acquired; null between two volumes.
  const std::shared_ptr<ActiveVolume>& active() const { return active_; }
  int64_t next_volume() const { return next_volume_; }
  /// No further volume will begin.
  bool over() const { return over_; }
  /// The record at which the active volume is complete: just after its last A-scan, or after the
  /// group of that A-scan, which shares one background.
  int64_t EndOfActive() const;

  /// What the active or the next volume is made with; a copy of `scan`, shared by its volumes.
  const std::shared_ptr<const model::ResolvedScan>& Origin();
  /// Call for each block, before its records are placed. Inspects those of the scan's first volume.
  void LookAt(const uint8_t* records, const source::SourceBlock& block);
  /// Call when the first record of volume `index` has arrived with `block`. Afterwards the volume
  /// is active, or the scan is over.
  absl::Status Begin(int64_t index, const source::SourceBlock& block);
  /// The chain has taken a segment, which lies at `raw` on the home device. It belongs to the
  /// active volume, or to a volume that has ended. True if it completes the active volume.
  absl::StatusOr<bool> Add(const Segment& segment, const uint8_t* raw,
                           const source::SourceBlock& block);
  /// The active volume gets no more records. Returns it; no volume is active afterwards.
  std::shared_ptr<ActiveVolume> TakeActive();
  /// Enqueues the work that completes a volume from TakeActive, and reports its missing A-scans.
  /// Drops a volume without a slot.
  absl::Status End(ActiveVolume& volume);
  /// The volume will not be sealed; its slots are returned. The device must have finished with
  /// them.
  void Fail(const ActiveVolume& volume);
  /// No more volumes will begin: counts the volumes that a counted scan never reached as lost.
  void CountLost();

 private:
  /// Whether a record of the volume, which begins with this block, was acquired before the scan was
  /// stopped.
  bool BeganBeforeTheStop(int64_t index, const source::SourceBlock& block) const;
  absl::Status TakeUpdate(int64_t volume);
  absl::Status TakeSlots(ActiveVolume* volume);
  model::VolumeStatus Describe(const memory::VolumeSlot& slot) const;
  void AddToStore(model::VolumeStatus status, const source::SourceBlock& block,
                  const std::shared_ptr<memory::VolumeSlot>& slot, model::VolumeStatus* out);
  bool rolling() const { return scan_.chain.background == math::Background::kRolling; }

  model::ResolvedScan& scan_;
  DeviceLanes& lanes_;
  const Context context_;
  std::unique_ptr<processing::RawRecorder> recorder_;        // with retention.hold_raw
  std::unique_ptr<processing::FirstRecords> first_records_;  // until the first volume ends
  std::shared_ptr<const model::ResolvedScan>
      origin_;  // copy of scan_, shared by the volumes made with it
  std::shared_ptr<ActiveVolume> active_;
  int64_t next_volume_ = 0;
  int64_t before_ns_ = 0,
          last_ns_ = 0;  // when the last block but one, and the last one, had arrived
  bool over_ = false;
};

}  // namespace octavo::scan
