#pragma once

#include <cstdint>

#include "gpu/base/memory_limit.h"
#include "server/config.h"

namespace octavo {

/// What of the host's memory each use may take at most.
struct HostBudget {
  int64_t devices_bytes = 0;     // budgets of devices that are the host's
  int64_t frame_pool_bytes = 0;  // of each device
  int64_t listen_bytes = 0;      // for what clients send
  int64_t spill_host_bytes = 0;
  int64_t projection_bytes = 0;
  int64_t sum(int devices) const {
    return devices_bytes + devices * frame_pool_bytes + listen_bytes + spill_host_bytes +
           projection_bytes;
  }
};

/// All uses together fit into nine tenths of what `memory` says can be had: what the configuration
/// leaves at its default gives way (frames not below 16 MiB a device, what clients send not below
/// 64 MiB); what it sets is taken as it is. `devices_bytes`: of all `devices`, where they are the
/// host's; else 0.
HostBudget FitHostMemory(const Config& config, const MemoryLimit& memory, int64_t devices_bytes,
                         int devices);

}  // namespace octavo
