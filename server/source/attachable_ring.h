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

  /// The process that attaches. The ring calls both functions on any thread, without a lock.
  struct Producer {
    std::function<void()> cut;  // called at most once: the producer must be disconnected
    std::function<bool()> has_gone = [] { return false; };  // Detach follows, but perhaps later
  };

  virtual ~AttachableRing() = default;
  /// Attaches a producer. One that has gone makes room, also before Detach tells so.
  /// FailedPrecondition (RING_TAKEN: there is one; another reason: what it feeds takes no more).
  virtual absl::StatusOr<Attachment> Attach(Producer producer) = 0;
  /// The producer has gone: its published slots count, the slot that it was filling does not.
  virtual void Detach(int64_t connection) = 0;
  /// Of the memory.
  virtual int64_t total_bytes() const = 0;
};

}  // namespace octavo::source
