#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

#include "gpu/base/unique_fd.h"

// Rings go from producer to producer: one is killed or restarted, and the next goes on behind it.
// A producer that has gone keeps the memory mapped as long as it likes, and no process can take a
// mapping of another one away. If the next producer wrote to the same memory, the one before could
// change its counters, so that the server would cut it off as a liar, or its records, unnoticed.
// Therefore each producer after the first gets memory of its own. It begins where the one before
// stopped; what that one had published and the server has not taken yet is copied into it. The
// memory before is told that it has been replaced (ESTALE), and its slots go back to the system as
// soon as no upload reads them: what a former producer writes there is read by nobody, and costs
// himself. To make the memory, and to page-lock it for the device (about 10 ms for 256 MiB, beside
// zeroing it), delays only the producer that attaches.
namespace octavo::source {

/// The server's end of a ring, for its producers: one at a time. Thread-safe.
class AttachableRing {
 public:
  /// The memory handed to a process that attaches: its own, and no producer's before it.
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
  /// Attaches a producer, to memory that no other process has. One that has gone makes room, also
  /// before Detach tells so. FailedPrecondition (RING_TAKEN: there is one; another reason: what it
  /// feeds takes no more), ResourceExhausted (HOST_MEMORY).
  virtual absl::StatusOr<Attachment> Attach(Producer producer) = 0;
  /// The producer has gone: its published slots count, the slot that it was filling does not.
  virtual void Detach(int64_t connection) = 0;
  /// Of the memory.
  virtual int64_t total_bytes() const = 0;
};

}  // namespace octavo::source
