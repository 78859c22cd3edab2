#pragma once

#include <cstdint>

#include "gpu/device/device.h"

namespace octavo::memory {

/// What the configuration says of the budgets of devices.
struct BudgetKeys {
  double fraction = 0;              // device.memory_fraction: of the memory that is free
  int64_t bytes = 0;                // device.memory_bytes: of each device; 0 = by the fraction
  int64_t host_for_jobs_bytes = 0;  // device.host_for_jobs_bytes; 0 = by the fraction

  /// The bytes that are set for a device, which may be devices/host; 0 = by the fraction.
  int64_t SetFor(bool host_for_jobs) const { return host_for_jobs ? host_for_jobs_bytes : bytes; }
  /// The budget in bytes of a device with this memory. Nothing checks here that it is free.
  int64_t BudgetOf(bool host_for_jobs, const DeviceMemory& memory) const {
    const int64_t set = SetFor(host_for_jobs);
    return set > 0 ? set : static_cast<int64_t>(static_cast<double>(memory.free_bytes) * fraction);
  }
};

}  // namespace octavo::memory
