#pragma once

#include <atomic>

#include "absl/status/status.h"

#include "gpu/base/status.h"

namespace octavo::engine {

/// Whether the server is about to end and takes no new work. Thread-safe.
class DrainState {
 public:
  void Begin() { draining_ = true; }
  bool draining() const { return draining_; }
  /// Unavailable (DRAINING).
  absl::Status Check() const {
    if (!draining_) return absl::OkStatus();
    return WithInfo(absl::UnavailableError(
                        "the server is draining and takes no new work; try another one or later"),
                    {.reason = Reason::kDraining, .field = "", .numbers = {{"retryable", "true"}}});
  }

 private:
  std::atomic<bool> draining_{false};
};

}  // namespace octavo::engine
