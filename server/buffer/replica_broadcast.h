#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/buffer/stream_ordering.h"

namespace octavo::buffer {

/// Brings host memory to several devices with one upload: it goes to the first device, and each
/// further one copies it from the one before, piece by piece, so that a device passes on what it
/// has while the next piece comes. One thread at a time.
class ReplicaBroadcast {
 public:
  /// Where the array is on one device. The order of the stops is the way that the bytes go.
  struct Stop {
    int device = 0;
    StreamRef stream;  // of `device`; what is enqueued on it before comes first
    char* memory = nullptr;
  };
  /// Measured on four H200 (tests/bench/RESULTS.md): smaller pieces cost upload rate, larger ones
  /// start the next hop later.
  static constexpr int64_t kPieceBytes = 4 << 20;

  /// `order` must outlive it; `piece_bytes` >= 1. InvalidArgument without stops.
  static absl::StatusOr<ReplicaBroadcast> Create(StreamOrdering* order, std::vector<Stop> stops,
                                                 int64_t piece_bytes = kPieceBytes);

  /// Enqueues bringing `bytes` of page-locked memory at `from` to byte `at` of every stop. Does not
  /// synchronise. `from` must stay until the returned mark is passed, the memory of the stops until
  /// their streams have passed it.
  absl::StatusOr<SharedEvent> Upload(const void* from, int64_t at, int64_t bytes);

 private:
  ReplicaBroadcast(StreamOrdering* order, std::vector<Stop> stops, int64_t piece_bytes)
      : order_(order), stops_(std::move(stops)), piece_bytes_(piece_bytes) {}

  StreamOrdering* order_;
  std::vector<Stop> stops_;
  int64_t piece_bytes_;
  std::vector<Event> arrived_;  // the newest piece, at each stop that another one follows
};

}  // namespace octavo::buffer
