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

/// How long the stages of a scan's blocks and volumes took.
struct ScanTimings {
  std::map<std::string, model::Histogram> stages;
  model::Histogram volume_latency;
};

/// How far a scan has come: counts, rates and times that its threads add to and its status tells.
/// Thread-safe; one short lock for each call.
class ScanProgress {
 public:
  explicit ScanProgress(const Clock* clock) : clock_(clock) {}

  /// Records are going to come.
  void Begin(int64_t now_ns);
  void BlockTaken(double seconds_waited);
  /// `seconds` < 0: no records of the ring were with it.
  void BlockThrough(int64_t now_ns, int64_t records, double seconds);
  void VolumeBegun(int64_t index);
  /// The share of the current volume that has come.
  void VolumeAt(double fraction);
  void VolumeSealed(int64_t now_ns, double seconds_after_acquired);
  /// Volumes that are not kept: those with no record and those without a slot.
  void VolumesDropped(int64_t volumes);
  void CountVoxels(int64_t voxels, int64_t clipped_below, int64_t clipped_above);
  /// So many records that are not finite since the scan began; true when it is for the first time
  /// any.
  bool CountNonFinite(int64_t records);
  /// Of a volume, where the device has stamped all of them.
  void CountStages(const model::StageTimes& stages);
  /// No volume is current any more.
  void End();

  int64_t current_volume();
  ScanTimings Timings();
  /// Sets what is counted here, and the rates of a scan that runs.
  void AddTo(model::ScanStatus* status);

  std::atomic<int64_t> missing_ascans{0}, blocks_dropped{0};
  std::atomic<int64_t> duplicate_records{0}, out_of_range_records{0};  // of the chain's records

 private:
  const Clock* const clock_;
  Mutex mutex_;
  model::ScanStatus counts_ ABSL_GUARDED_BY(mutex_);  // of it only what AddTo copies
  ScanTimings timings_ ABSL_GUARDED_BY(mutex_);
  base::RateMeter records_rate_ ABSL_GUARDED_BY(mutex_), volumes_rate_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::scan
