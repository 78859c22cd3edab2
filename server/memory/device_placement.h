#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/scan_spec.h"

namespace octavo::memory {

/// The state of a device for a placement.
struct DeviceLoad {
  absl::Status health;
  int running = 0;  // scans and jobs that run on it
  int waiting = 0;  // scans and jobs that have memory there and wait for their turn
  int64_t free_bytes = 0;
};

/// A placement request and the device memory that it needs.
struct DeviceWish {
  std::string device;          // home: "" and "auto" = chosen, or devices/<n>
  model::Spread spread;        // unset: only the home device
  int64_t home_bytes = 0;      // on the home device
  int64_t peer_bytes = 0;      // on each of the other devices
  bool host_for_jobs = false;  // the server has devices/host, which takes no scan
};

/// Chooses the devices, home first. A device that may be chosen freely is the least loaded healthy
/// one with room: fewest scans and jobs at work, then fewest waiting, then most free memory. If
/// none has room, it picks the best by the other criteria, so that the ledger refuses with its
/// numbers. `loads` [devices/<n>], without devices/host. InvalidArgument names the field (device,
/// spread.count, spread.devices); Unavailable (DEVICE_DOWN) if the named device, or too many of the
/// requested devices, cannot be used.
absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceWish& wish,
                                               const std::vector<DeviceLoad>& loads);

}  // namespace octavo::memory
