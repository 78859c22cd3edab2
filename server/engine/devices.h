#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/base/callback_handle.h"
#include "server/engine/device_benchmark.h"
#include "server/engine/device_health.h"
#include "server/model/resolved_scan.h"
#include "server/model/status_types.h"

namespace octavo::engine {

struct Components;

/// The devices, their health and the use of their memory.
class Devices {
 public:
  explicit Devices(Components* components) : components_(*components) {}

  std::vector<model::DeviceStatus> List();
  /// Calls `callback` at once with the status of the devices, and from an engine thread whenever a
  /// device is lost.
  std::unique_ptr<base::Handle> Watch(
      std::function<void(const std::vector<model::DeviceStatus>&)> callback);
  model::MemoryStatus GetMemory();
  /// Measures a device, figure by figure. This is the one call that takes seconds, so call it from
  /// a thread that may wait. FailedPrecondition (SCANS_RUNNING, MEASURING), Aborted
  /// (MEASUREMENT_DISTURBED) once a scan is submitted, Unavailable when draining; see
  /// device_benchmark.h.
  absl::Status Measure(MeasureSpec spec, const TellMeasured& tell);

  /// The devices that a scan would run on now, home first. Sets scan->stripe_devices.
  absl::StatusOr<std::vector<int>> ChooseFor(model::ResolvedScan* scan);
  /// Looks for devices lost since the last call: ends their scans and notifies the watchers.
  void PollHealth();

 private:
  Components& components_;
  DeviceHealthWatch watch_;
  std::atomic<bool> measuring_{false};
};

}  // namespace octavo::engine
