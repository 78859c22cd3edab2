#pragma once

#include <string>

#include "octavo/v1/system.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// "host memory 1.4 GiB, limited by /sys/fs/cgroup/memory.max (the machine has 31.3 GiB), 1.2 GiB
/// available"
inline std::string HostMemoryText(const v1::HostMemory& memory) {
  const auto bytes = [](int64_t n) { return Bytes(static_cast<double>(n)); };
  const std::string limit = memory.limited_by().empty()
                                ? ""
                                : ", limited by " + memory.limited_by() + " (the machine has " +
                                      bytes(memory.machine_bytes()) + ")";
  return "host memory " + bytes(memory.total_bytes()) + limit + ", " +
         bytes(memory.available_bytes()) + " available";
}

}  // namespace octavo::cli
