#pragma once

#include <set>
#include <string>

#include "gpu/base/mutex.h"
#include "server/derive/deriver.h"
#include "server/engine/scan_registry.h"
#include "server/volume/volume_observer.h"

namespace octavo::engine {

/// Asks the Deriver, once per volume, for the derived volumes that a scan requests. The Deriver's
/// threads compute beside the scan.
class DerivedVolumes final : public volume::VolumeObserver {
 public:
  DerivedVolumes(ScanRegistry* scans, derive::Deriver* deriver)
      : scans_(scans), deriver_(deriver) {}
  void OnVolumeChanged(const model::VolumeStatus& volume) override;

 private:
  ScanRegistry* const scans_;
  derive::Deriver* const deriver_;
  Mutex mutex_;
  std::set<std::string> asked_
      ABSL_GUARDED_BY(mutex_);  // volumes in memory that were already requested
};

}  // namespace octavo::engine
