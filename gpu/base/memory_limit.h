#pragma once

#include <cstdint>
#include <string>

namespace octavo::inline gpu {

/// The main memory that this process may use: the machine's memory, or less where a control group
/// (v1 or v2: a container, a systemd unit) limits it. Beyond a group's limit the kernel kills
/// processes of the group, or (memory.high) stalls them.
struct MemoryLimit {
  int64_t total_bytes = 0;      // the least of the machine's memory and all limits
  int64_t available_bytes = 0;  // the least of the memory that the machine and each limit leave;
                                // page cache counts as available
  int64_t machine_bytes = 0;    // the machine's memory
  std::string limited_by;  // the file that sets total_bytes, "/sys/fs/cgroup/…/memory.max"; empty =
                           // the machine
};

/// Reads the limits anew, because they may change while a process runs. `root` is the folder that
/// contains /proc and the file systems of the control groups; a root other than "" is for tests. A
/// file that cannot be read sets no limit. Without /proc/meminfo all values are 0.
MemoryLimit ReadMemoryLimit(const std::string& root = "");

}  // namespace octavo::inline gpu
