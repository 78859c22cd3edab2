#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/stream_ordering.h"

namespace octavo::buffer {

/// Copies host memory to several devices with one upload. The upload goes to the first device, and
/// each further device copies from the previous one, piece by piece: a device passes a piece on
/// while the next piece arrives. One thread at a time.
class ReplicaBroadcast {
 public:
  /// Location of the array on one device. The bytes travel in the order of the stops.
  struct Stop {
    int device = 0;
    StreamRef stream;  // of `device`; work enqueued on it earlier comes first
    char* memory = nullptr;
  };
  /// Measured on four H200 (tests/bench/RESULTS.md): smaller pieces cost upload rate, larger ones
  /// start the next hop later.
  static constexpr int64_t kPieceBytes = 4 << 20;

  /// `order` must outlive this object; `piece_bytes` >= 1. InvalidArgument without stops.
  static absl::StatusOr<ReplicaBroadcast> Create(StreamOrdering* order, std::vector<Stop> stops,
                                                 int64_t piece_bytes = kPieceBytes);

  /// Enqueues the copy of `bytes` bytes of page-locked memory at `from` to byte `at` of every stop.
  /// Does not synchronise. `from` must stay valid until the returned mark has passed, the memory of
  /// the stops until their streams have passed it.
  absl::StatusOr<SharedEvent> Upload(const void* from, int64_t at, int64_t bytes);

 private:
  ReplicaBroadcast(StreamOrdering* order, std::vector<Stop> stops, int64_t piece_bytes)
      : order_(order), stops_(std::move(stops)), piece_bytes_(piece_bytes) {}

  StreamOrdering* order_;
  std::vector<Stop> stops_;
  int64_t piece_bytes_;
  std::vector<Event> arrived_;  // arrival of the newest piece at each stop except the last
};

}  // namespace octavo::buffer
