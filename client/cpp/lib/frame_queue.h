#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "octavo/v1/stream.pb.h"

#include "client/cpp/include/octavo/octavo.h"

namespace octavo::client {

/// The frames of a stream that wait for the caller, in order. A frame with data comes out of the
/// call only when no other one waits: the server keeps the rest, and drops what its delivery says.
/// A frame of a volume that is to be read is small and comes at once, because the server would take
/// it for delivered while it lies in gRPC: so the delivery of those applies here. Not thread-safe.
class FrameQueue {
 public:
  explicit FrameQueue(const v1::SubscribeRequest& request);

  /// Whether the frame has no data, because the client is to read the volume.
  static bool IsToBeRead(const Frame& frame);
  /// Nothing that is lost may be lost in silence.
  bool lossless() const { return delivery_ == v1::DELIVERY_LOSSLESS; }

  void Push(Frame frame);
  /// Whether the next frame may be taken out of the call.
  bool HasRoom() const;
  bool empty() const { return frames_.empty(); }
  Frame Pop();
  /// The volume of this frame, which was popped, has gone: the next one of its topic says so.
  void Lost(const Frame& frame);
  void Clear() { frames_.clear(); }

 private:
  const v1::Delivery delivery_;  // of volumes
  const size_t most_;            // DROP_OLDEST
  std::deque<Frame> frames_;
  std::map<std::string, uint64_t> lost_;  // volumes of each parent since the last one that came
};

}  // namespace octavo::client
