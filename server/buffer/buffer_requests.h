#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "server/base/request_ids.h"

namespace octavo::buffer {

/// The requests for new buffers and operations: a retry gets what the first request made, and
/// nothing new begins while the server drains. Thread-safe.
class BufferRequests {
 public:
  /// Refuses new work from now on.
  void BeginDrain() { draining_ = true; }
  /// Unavailable (DRAINING) from BeginDrain on.
  absl::Status CheckOpen() const;
  /// As base::RequestIds.
  absl::StatusOr<std::string> Begin(const std::string& id, const std::string& digest,
                                    const std::string& principal);
  void End(const std::string& id, const std::string& name);

 private:
  std::atomic<bool> draining_{false};
  Mutex mutex_;
  base::RequestIds ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::buffer
