#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "server/buffer/stream_ordering.h"

namespace octavo::buffer {

/// A piece of device memory on its way to page-locked memory, which it owns. The memory therefore
/// returns to its pool as soon as its last user drops it. It does not wait for the thread that
/// follows the device's work: that thread may be busy with the long work of another client, and a
/// reader that is faster than it would use up the pool alone. Only a piece that is dropped before
/// its copy has passed leaves its memory to that thread.
class PieceToHost {
 public:
  PieceToHost() = default;
  /// `passed`: set behind the copy. `order` must outlive the piece.
  PieceToHost(StreamOrdering& order, int device, std::shared_ptr<void> memory, SharedEvent passed,
              int64_t bytes)
      : order_(&order),
        device_(device),
        memory_(std::move(memory)),
        passed_(std::move(passed)),
        bytes_(bytes) {}
  PieceToHost(PieceToHost&& other) noexcept { *this = std::move(other); }
  PieceToHost& operator=(PieceToHost&& other) noexcept;
  ~PieceToHost();

  /// False for a piece without memory: default-made or moved from.
  explicit operator bool() const { return memory_ != nullptr; }
  int64_t bytes() const { return bytes_; }
  /// Waits for the copy; then the memory, which may outlive the piece. May be called again.
  absl::StatusOr<std::shared_ptr<void>> Wait();

 private:
  StreamOrdering* order_ = nullptr;
  int device_ = 0;
  std::shared_ptr<void> memory_;
  SharedEvent passed_;  // null once waited for
  int64_t bytes_ = 0;
};

}  // namespace octavo::buffer
