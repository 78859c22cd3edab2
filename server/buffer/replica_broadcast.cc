#include "server/buffer/replica_broadcast.h"

#include <algorithm>
#include <utility>

#include "gpu/base/status.h"

namespace octavo::buffer {

absl::StatusOr<ReplicaBroadcast> ReplicaBroadcast::Create(StreamOrdering* order,
                                                          std::vector<Stop> stops,
                                                          int64_t piece_bytes) {
  if (stops.empty()) return absl::InvalidArgumentError("stops: is empty; allowed 1 or more");
  ReplicaBroadcast forwarder(order, std::move(stops), piece_bytes);
  for (size_t i = 0; i + 1 < forwarder.stops_.size(); ++i) {
    OCTAVO_ASSIGN_OR_RETURN(Event event, order->device(forwarder.stops_[i].device).NewEvent());
    forwarder.arrived_.push_back(std::move(event));
  }
  return forwarder;
}

absl::StatusOr<SharedEvent> ReplicaBroadcast::Upload(const void* from, int64_t at, int64_t bytes) {
  // With one stop there is no further device to pass pieces on to.
  const int64_t most = stops_.size() == 1 ? bytes : piece_bytes_;
  for (int64_t done = 0; done < bytes; done += most) {
    const int64_t count = std::min(most, bytes - done), to = at + done;
    OCTAVO_RETURN_IF_ERROR(order_->device(stops_[0].device)
                               .CopyToDevice(stops_[0].stream, stops_[0].memory + to,
                                             static_cast<const char*>(from) + done, count));
    for (size_t i = 1; i < stops_.size(); ++i) {
      const Stop &before = stops_[i - 1], &stop = stops_[i];
      OCTAVO_RETURN_IF_ERROR(arrived_[i - 1].Record(before.stream));
      OCTAVO_RETURN_IF_ERROR(arrived_[i - 1].EnqueueWait(stop.stream));
      OCTAVO_RETURN_IF_ERROR(
          order_->device(stop.device)
              .CopyAcross(stop.stream, stop.memory + to, before.memory + to, count));
    }
  }
  return order_->Mark(stops_[0].device, stops_[0].stream);
}

}  // namespace octavo::buffer
