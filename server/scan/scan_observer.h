#pragma once

#include <string>

#include "server/model/scan_spec.h"

namespace octavo::scan {

/// Notifications from a scan to the layers above; there is no other path upwards. The engine is the
/// observer of its scans. The scan's own threads call, and so do threads that stop or update it.
/// They hold no locks of the scan, except where a function says so. Must outlive the scan.
class ScanObserver {
 public:
  virtual ~ScanObserver() = default;
  /// The state or the warnings of the scan have changed; watchers of the scan are interested.
  /// Called once more when the scan has finished.
  virtual void OnScanChanged(const std::string& scan) = 0;
  /// The scan takes no more records: the next scan of `queue` may begin while this one drains.
  /// Called once for each scan, before it has finished; compute thread.
  virtual void OnAcquisitionOver(const std::string& scan, const std::string& queue) = 0;
  /// A volume is held, and its scan's retention (AUTO_COMMIT) wants it committed with `options`;
  /// retire thread.
  virtual void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) = 0;
};

}  // namespace octavo::scan
