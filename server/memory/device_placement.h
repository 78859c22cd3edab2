#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/scan_spec.h"

namespace octavo::memory {

/// What is known of a device when something is to be placed.
struct DeviceLoad {
  absl::Status health;
  int running = 0;  // scans and jobs at work on it
  int waiting = 0;  // scans and jobs that have memory there and wait for their turn
  int64_t free_bytes = 0;
};

/// What is to be placed, and what it needs of device memory.
struct DeviceWish {
  std::string device;      // home: "" and "auto" = chosen, or devices/<n>
  model::Spread spread;    // unset: the home device alone
  int64_t home_bytes = 0;  // on the home device
  int64_t peer_bytes = 0;  // on each further one
};

/// The devices to take, home first. What may be chosen is the least loaded healthy device with
/// room: fewest at work, then fewest waiting, then most free memory. Where none has room, one that
/// is as good else, for the ledger to refuse with its numbers. `loads` [devices/<n>].
/// InvalidArgument names the field (device, spread.count, spread.devices); Unavailable
/// (DEVICE_DOWN) if the named device, or too many for the wish, cannot be used.
absl::StatusOr<std::vector<int>> ChooseDevices(const DeviceWish& wish,
                                               const std::vector<DeviceLoad>& loads);

}  // namespace octavo::memory
