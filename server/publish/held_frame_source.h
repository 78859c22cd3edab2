#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/frame.h"
#include "server/model/status_types.h"

namespace octavo::publish {

/// Where a Publisher gets frames that it does not keep: those of held volumes.
class HeldFrameSource {
 public:
  virtual ~HeldFrameSource() = default;
  /// Fetches the data of a frame that is kept without its payload: a volume, or a B-scan of a held
  /// volume. Calls `done` once from another thread, with NotFound or FailedPrecondition if the
  /// volume is gone.
  virtual void Load(const model::FramePtr& header,
                    std::function<void(absl::StatusOr<model::FramePtr>)> done) = 0;
  /// The held volumes that a scan or job made, oldest first; no raw spectra, nothing derived. The
  /// publisher makes B-scans of an ended scan of them. It calls without locks.
  virtual std::vector<model::VolumeStatus> HeldBy(const std::string& name) = 0;
};

}  // namespace octavo::publish
