#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "grpcpp/support/byte_buffer.h"

#include "server/base/worker_pool.h"
#include "server/rpc/frame_pump.h"
#include "server/rpc/transport/reactor.h"

namespace octavo::rpc {

/// Sends frames as the messages of a Subscribe call, in chunks. Takes the next frame when the last
/// one is written.
class FrameMessages final : public FrameSink, public std::enable_shared_from_this<FrameMessages> {
 public:
  /// `workers` send the chunks behind the first.
  FrameMessages(std::weak_ptr<QueuedWriter<grpc::ByteBuffer>> writer, std::weak_ptr<FramePump> pump,
                base::WorkerPool* workers, int64_t chunk_bytes)
      : writer_(std::move(writer)),
        pump_(std::move(pump)),
        workers_(workers),
        chunk_bytes_(chunk_bytes) {}

  void Guard(const std::function<void()>& step) override;
  bool Ready() override { return !busy_; }
  bool SendsAtOnce(int64_t) override { return false; }
  bool TakesEnd() override { return !busy_; }  // behind the last chunk
  absl::Status Send(OutgoingFrame frame) override;
  void End(const absl::Status& why) override;

 private:
  void SendChunk();
  void PostChunk();
  void Written();

  const std::weak_ptr<QueuedWriter<grpc::ByteBuffer>> writer_;
  const std::weak_ptr<FramePump> pump_;
  base::WorkerPool* const workers_;
  const int64_t chunk_bytes_;
  std::atomic<bool> busy_{false};  // with `frame_`
  OutgoingFrame frame_;
  int64_t offset_ = 0;
  uint32_t crc_ = 0;
  std::atomic<int> undone_{0};  // of the chunk under way: its write, its checksum
};

}  // namespace octavo::rpc
