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

/// The volumes of a scan at their borders: a slot, a description and the processing when one
/// begins; which of its A-scans came; its end, and what is missing of it. Decides with which volume
/// the scan ends. Compute thread.
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
  /// `scan`: of the volume that is acquired; replaced here, between two volumes, by an update.
  /// Everything must outlive this.
  VolumeBuilder(model::ResolvedScan* scan, DeviceLanes* lanes, Context context);
  absl::Status Allocate();
  void Free() { recorder_ = nullptr; }
  void LetGo() { origin_ = nullptr; }

  /// The volume that is acquired; null between two.
  const std::shared_ptr<ActiveVolume>& active() const { return active_; }
  int64_t next_volume() const { return next_volume_; }
  /// No further volume will begin.
  bool over() const { return over_; }
  /// The place in the active volume at which it is complete: behind its last A-scan, or behind that
  /// one's group, which has one background.
  int64_t EndOfActive() const;

  /// Looks at records of the scan until its first volume has ended.
  void LookAt(const uint8_t* records, const source::SourceBlock& block);
  /// A record of volume `index` has come with `block`. Afterwards the volume is active, or the scan
  /// is over.
  absl::Status Begin(int64_t index, const source::SourceBlock& block);
  /// The chain has taken a segment, which lies at `raw` on the home device: of the active volume,
  /// or of one that has ended. True if the active volume is complete with it.
  absl::StatusOr<bool> Add(const Segment& segment, const uint8_t* raw,
                           const source::SourceBlock& block);
  /// No more of the active volume will come: it is not active any more.
  std::shared_ptr<ActiveVolume> TakeActive();
  /// Enqueues what completes the volume that was taken, and says what is missing of it. One without
  /// a slot is dropped.
  absl::Status End(ActiveVolume& volume);
  /// The volume will not be sealed. Its slots must not be in use any more when they go back.
  void Fail(const ActiveVolume& volume);
  /// No more volumes will begin: those that a counted scan has not seen are lost.
  void CountLost();

 private:
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
      origin_;  // a copy of scan_ for the volumes made with it
  std::shared_ptr<ActiveVolume> active_;
  int64_t next_volume_ = 0;
  bool over_ = false;
};

}  // namespace octavo::scan
