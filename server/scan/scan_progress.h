#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "gpu/base/clock.h"
#include "gpu/base/mutex.h"
#include "server/base/rate_meter.h"
#include "server/model/frame.h"
#include "server/model/stats.h"
#include "server/model/status_types.h"

namespace octavo::scan {

/// Durations of the stages of a scan's blocks and volumes.
struct ScanTimings {
  std::map<std::string, model::Histogram> stages;
  model::Histogram volume_latency;
};

/// Progress of a scan: counts, rates and times. The scan's threads add to them and its status
/// reports them. Thread-safe; one short lock for each call.
class ScanProgress {
 public:
  explicit ScanProgress(const Clock* clock) : clock_(clock) {}

  /// The scan is about to take records.
  void Begin(int64_t now_ns);
  void BlockTaken(double seconds_waited);
  /// `seconds` < 0: the completion released no records of the ring.
  void BlockThrough(int64_t now_ns, int64_t records, double seconds);
  void VolumeBegun(int64_t index);
  /// The fraction of the current volume that has arrived.
  void VolumeAt(double fraction);
  void VolumeSealed(int64_t now_ns, double seconds_after_acquired);
  /// Counts dropped volumes: those with no record and those without a slot.
  void VolumesDropped(int64_t volumes);
  void CountVoxels(int64_t voxels, int64_t clipped_below, int64_t clipped_above);
  /// `records`: total of non-finite records since the scan began. True the first time the total is
  /// not zero.
  bool CountNonFinite(int64_t records);
  /// Adds a volume's stage times if the device has stamped all of them.
  void CountStages(const model::StageTimes& stages);
  /// No volume is current from now on.
  void End();

  int64_t current_volume();
  ScanTimings Timings();
  /// Sets the counts, and the rates while the scan runs.
  void AddTo(model::ScanStatus* status);

  std::atomic<int64_t> volumes_begun{0};  // also one that waits for its slot, or gets none
  std::atomic<int64_t> missing_ascans{0}, blocks_dropped{0};
  std::atomic<int64_t> duplicate_records{0}, out_of_range_records{0};  // of the chain's records

 private:
  const Clock* const clock_;
  Mutex mutex_;
  model::ScanStatus counts_ ABSL_GUARDED_BY(mutex_);  // only the fields that AddTo copies
  ScanTimings timings_ ABSL_GUARDED_BY(mutex_);
  base::RateMeter records_rate_ ABSL_GUARDED_BY(mutex_), volumes_rate_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
