#pragma once

#include <string>

#include "server/model/scan_spec.h"

namespace octavo::scan {

/// What a scan tells upwards: all of it. The engine is the observer of its scans. Called from the
/// scan's own threads and from those that stop or update it, without locks of the scan but where a
/// function says so; must outlive the scan.
class ScanObserver {
 public:
  virtual ~ScanObserver() = default;
  /// The state or the warnings of the scan are others now: those that watch it want to know. Once
  /// more when the scan has finished.
  virtual void OnScanChanged(const std::string& scan) = 0;
  /// The scan takes no more records: the next one of `queue` may begin while it drains. Once for
  /// each scan, before it has finished; compute thread.
  virtual void OnAcquisitionOver(const std::string& scan, const std::string& queue) = 0;
  /// A volume is held that the retention of its scan (AUTO_COMMIT) wants committed so; retire
  /// thread.
  virtual void OnCommitWanted(const std::string& volume, const model::CommitOptions& options) = 0;
};

}  // namespace octavo::scan
