#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>

#include "gpu/base/mutex.h"
#include "server/base/worker_pool.h"
#include "server/derive/deriver.h"
#include "server/engine/scan_registry.h"
#include "server/volume/volume_observer.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Asks the Deriver, once per volume, for the derived volumes that a scan requests. The Deriver's
/// threads compute beside the scan. The source says which it could not have, and why
/// (VolumeStatus::skipped_chains).
class DerivedVolumes final : public volume::VolumeObserver {
 public:
  /// `volumes` may have this object among its observers.
  DerivedVolumes(ScanRegistry* scans, derive::Deriver* deriver, volume::VolumeStore* volumes,
                 base::WorkerPool* workers)
      : scans_(scans), deriver_(deriver), volumes_(volumes), workers_(workers) {}
  void OnVolumeChanged(const model::VolumeStatus& volume) override;
  /// Derived volumes that were requested and not made.
  int64_t Skipped() const { return skipped_; }

 private:
  void Skip(const std::string& volume, const std::string& chain, const absl::Status& why);

  ScanRegistry* const scans_;
  derive::Deriver* const deriver_;
  volume::VolumeStore* const volumes_;
  base::WorkerPool* const workers_;
  std::atomic<int64_t> skipped_{0};
  Mutex mutex_;
  std::set<std::string> asked_
      ABSL_GUARDED_BY(mutex_);  // volumes in memory that were already requested
};

}  // namespace octavo::engine
