#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

namespace octavo::source {

/// The server's end of a ring, for its producers: one at a time. Thread-safe.
class AttachableRing {
 public:
  /// The memory handed to a process that attaches.
  struct Attachment {
    int64_t connection = 0;
    UniqueFd fd;  // of the memory
  };

  virtual ~AttachableRing() = default;
  /// Attaches a producer. The ring calls `cut` (any thread, no lock held, at most once) when the
  /// producer must be disconnected. FailedPrecondition (RING_TAKEN: there is one; another reason:
  /// what it feeds takes no more).
  virtual absl::StatusOr<Attachment> Attach(std::function<void()> cut) = 0;
  /// The producer has gone: its published slots count, the slot that it was filling does not.
  virtual void Detach(int64_t connection) = 0;
  /// Of the memory.
  virtual int64_t total_bytes() const = 0;
};

}  // namespace octavo::source
