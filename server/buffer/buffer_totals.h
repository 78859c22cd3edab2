#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace octavo::buffer {

/// Counts of buffers and of the work on them.
struct BufferTotals {
  int64_t buffers = 0, bytes = 0, operations = 0, uploaded_bytes = 0, forwarded_bytes = 0,
          read_bytes = 0;
  std::map<std::string, int64_t> gone;           // by reason: "destroyed", "expired", "revoked"
  std::map<std::string, int64_t> refusals;       // calls that failed, by reason
  std::map<int, int64_t> replicas_on, bytes_on;  // now, by device; without what clients lend
  // Now: memory that clients lend, until it is unmapped.
  int64_t loans = 0;
  std::map<int, int64_t> lent_bytes_on;         // by device
  int64_t owners = 0, largest_owner_bytes = 0;  // now
  int64_t quota_bytes = 0;
};

}  // namespace octavo::buffer
