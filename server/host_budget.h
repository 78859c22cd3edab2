#pragma once

#include <cstdint>

#include "gpu/base/memory_limit.h"
#include "server/config.h"

namespace octavo {

/// The largest share of the host's memory for each use.
struct HostBudget {
  int64_t devices_bytes = 0;     // budgets of devices that are the host's
  int64_t frame_pool_bytes = 0;  // of each device
  int64_t listen_bytes = 0;      // for data that clients send
  int64_t spill_host_bytes = 0;
  int64_t projection_bytes = 0;
  int64_t picture_bytes = 0;       // of volumes, while they are made and sent
  int64_t shared_frame_bytes = 0;  // frames that clients map
  int64_t sum(int devices) const {
    return devices_bytes + devices * frame_pool_bytes + listen_bytes + spill_host_bytes +
           projection_bytes + picture_bytes + shared_frame_bytes;
  }
};

/// All uses together fit into nine tenths of the memory available according to `memory`: budgets at
/// their defaults shrink (frames not below 16 MiB per device, data of clients not below 64 MiB);
/// configured budgets stay unchanged. Pictures get an eighth of what the devices and configured
/// budgets leave, 32 MiB to 1 GiB, frames that clients map a sixteenth, 16 MiB to 1 GiB.
/// `devices_bytes`: the memory of all `devices`, if it is the host's; else 0.
HostBudget FitHostMemory(const Config& config, const MemoryLimit& memory, int64_t devices_bytes,
                         int devices);

}  // namespace octavo
