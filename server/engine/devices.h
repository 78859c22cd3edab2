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
#include "server/storage/direct/storage_reads.h"

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

  /// Measures how files below a storage root come fastest into a device; from then on they do.
  /// `bytes` of a file are read; 0 = 256 MiB. This call takes seconds, so call it from a thread
  /// that may wait. `may_go_on` is asked now and then; its error ends the measurement.
  /// InvalidArgument (device, bytes), ResourceExhausted for lack of device memory, Unavailable when
  /// draining; else errors as StorageReads::Begin and Measure.
  absl::StatusOr<storage::RootReads> ProbeStorage(const std::string& root,
                                                  const std::string& device, int64_t bytes,
                                                  const MayGoOn& may_go_on);
  /// What was found of each storage root.
  std::vector<storage::RootReads> StorageRoots() const;

  /// The devices that a scan would run on now, home first. Sets scan->stripe_devices.
  absl::StatusOr<std::vector<int>> ChooseFor(model::ResolvedScan* scan);
  /// Looks for devices lost since the last call: ends their scans and notifies the watchers.
  void PollHealth();

 private:
  /// The index of a device by its name, empty = the first. `host_too`: devices/host is allowed,
  /// into which no files are imported.
  absl::StatusOr<size_t> Find(const std::string& device, bool host_too) const;

  Components& components_;
  DeviceHealthWatch watch_;
  std::atomic<bool> measuring_{false};
};

}  // namespace octavo::engine
