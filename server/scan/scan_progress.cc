#include "server/scan/scan_progress.h"

#include <algorithm>

namespace octavo::scan {

void ScanProgress::Begin(int64_t now_ns) {
  MutexLock lock(mutex_);
  records_rate_.Add(now_ns, 0);
  volumes_rate_.Add(now_ns, 0);
}

void ScanProgress::BlockTaken(double seconds_waited) {
  MutexLock lock(mutex_);
  timings_.stages["wait"].Add(seconds_waited);
}

void ScanProgress::BlockThrough(int64_t now_ns, int64_t records, double seconds) {
  MutexLock lock(mutex_);
  counts_.records += records;
  records_rate_.Add(now_ns, records);
  if (seconds >= 0) timings_.stages["process"].Add(seconds);
}

void ScanProgress::VolumeBegun(int64_t index) {
  MutexLock lock(mutex_);
  counts_.current_volume = index;
}

void ScanProgress::VolumeAt(double fraction) {
  MutexLock lock(mutex_);
  counts_.current_fraction = fraction;
}

void ScanProgress::VolumeSealed(int64_t now_ns, double seconds_after_acquired) {
  MutexLock lock(mutex_);
  ++counts_.volumes_done;
  counts_.current_fraction = 0;
  volumes_rate_.Add(now_ns, 1);
  timings_.volume_latency.Add(seconds_after_acquired);
}

void ScanProgress::VolumesDropped(int64_t volumes) {
  MutexLock lock(mutex_);
  counts_.volumes_dropped += volumes;
}

void ScanProgress::CountVoxels(int64_t voxels, int64_t clipped_below, int64_t clipped_above) {
  MutexLock lock(mutex_);
  counts_.voxels += voxels;
  counts_.clipped_below += clipped_below;
  counts_.clipped_above += clipped_above;
}

bool ScanProgress::CountNonFinite(int64_t records) {
  MutexLock lock(mutex_);
  const bool first = records > 0 && counts_.non_finite_records == 0;
  counts_.non_finite_records = std::max(counts_.non_finite_records, records);
  return first;
}

void ScanProgress::CountStages(const model::StageTimes& stages) {
  MutexLock lock(mutex_);
  timings_.stages["upload"].Add(static_cast<double>(stages.uploaded_ns - stages.taken_ns) * 1e-9);
  timings_.stages["download"].Add(static_cast<double>(stages.on_host_ns - stages.processed_ns) *
                                  1e-9);
  timings_.stages["publish"].Add(static_cast<double>(stages.sealed_ns - stages.on_host_ns) * 1e-9);
}

void ScanProgress::End() {
  MutexLock lock(mutex_);
  counts_.current_volume = -1;
  counts_.current_fraction = 0;
}

int64_t ScanProgress::current_volume() {
  MutexLock lock(mutex_);
  return counts_.current_volume;
}

ScanTimings ScanProgress::Timings() {
  MutexLock lock(mutex_);
  return timings_;
}

void ScanProgress::AddTo(model::ScanStatus* status) {
  const int64_t now = clock_->Now().monotonic_ns;
  {
    MutexLock lock(mutex_);
    status->records = counts_.records;
    status->volumes_done = counts_.volumes_done;
    status->volumes_dropped = counts_.volumes_dropped;
    status->current_volume = counts_.current_volume;
    status->current_fraction = counts_.current_fraction;
    status->non_finite_records = counts_.non_finite_records;
    status->voxels = counts_.voxels;
    status->clipped_below = counts_.clipped_below;
    status->clipped_above = counts_.clipped_above;
    status->records_per_second = records_rate_.PerSecond(now);
    status->volumes_per_second = volumes_rate_.PerSecond(now);
  }
  status->missing_ascans = missing_ascans;
  status->blocks_dropped = blocks_dropped;
}

}  // namespace octavo::scan
