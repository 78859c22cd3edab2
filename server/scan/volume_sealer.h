#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gpu/base/clock.h"
#include "server/model/resolved_scan.h"
#include "server/publish/publisher.h"
#include "server/scan/acquirer.h"
#include "server/scan/completion_queue.h"
#include "server/scan/device_lanes.h"
#include "server/scan/retention_policy.h"
#include "server/scan/scan_events.h"
#include "server/scan/scan_lifecycle.h"
#include "server/scan/scan_memory.h"
#include "server/scan/scan_progress.h"
#include "server/scan/volume_frames.h"
#include "server/volume/volume_store.h"

namespace octavo::scan {

/// The body of the retire thread: follows the device in order. Returns blocks to the ring, seals or
/// fails volumes, publishes products, and does the slower work last.
class VolumeSealer {
 public:
  struct Context {
    std::string scan;
    const Clock* clock = nullptr;
    CompletionQueue* completions = nullptr;
    DeviceLanes* lanes = nullptr;
    Acquirer* acquirer = nullptr;
    ScanMemory* memory = nullptr;
    volume::VolumeStore* store = nullptr;
    publish::Publisher* publisher = nullptr;
    VolumeFrames* frames = nullptr;
    RetentionPolicy* retention = nullptr;
    ScanEvents* events = nullptr;
    ScanProgress* progress = nullptr;
    ScanLifecycle* life = nullptr;
  };
  /// Everything in the context must outlive this object. The sealer keeps no reference to `scan`.
  VolumeSealer(const model::ResolvedScan& scan, Context context);

  /// Runs until the queue is closed and empty.
  void Run();
  /// Counts the records found non-finite since the last volume, once all completions are retired.
  /// Waits for all lanes.
  void CountNonFinite();

 private:
  void Retire(Completion& item);
  void BreakOff(Completion& item, const absl::Status& status);
  void Release(Completion& item);
  [[nodiscard]] RetentionPolicy::Sealed Seal(Completion& item);
  void Fail(const ActiveVolume& volume, const absl::Status& status);
  void SealAndPublish(Completion& item, const absl::Status& status, int64_t now_ns);
  void PublishFrames(Completion& item, const absl::Status& status, const model::StageTimes& stages);
  model::StageTimes StagesOf(const Completion& item, int64_t seen_ns);
  void Dispose(Completion& item, const absl::Status& status, int64_t now_ns);
  void AddNonFinite(const uint64_t* counts);
  void CountClipped(const model::VolumeStatus& volume);

  const Context context_;
  const int64_t volumes_wanted_;  // of a counted scan; < 0 = until stopped
};

}  // namespace octavo::scan
