#include "server/rpc/frame_messages.h"

#include <algorithm>
#include <utility>

#include "octavo/v1/stream.pb.h"

#include "server/model/checksum.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/payload.h"

namespace octavo::rpc {

void FrameMessages::Guard(const std::function<void()>& step) {
  if (const auto writer = writer_.lock()) writer->Feed(step);
}

absl::Status FrameMessages::Send(OutgoingFrame frame) {
  busy_ = true;
  frame_ = std::move(frame);
  offset_ = 0;
  crc_ = 0;
  SendChunk();
  return absl::OkStatus();
}

void FrameMessages::End(const absl::Status& why) {
  if (const auto writer = writer_.lock()) writer->End(ToGrpc(why));
}

void FrameMessages::SendChunk() {
  const auto writer = writer_.lock();
  if (writer == nullptr) return;
  const model::Bytes& data = frame_.data;
  v1::SubscribeResponse header;
  if (offset_ == 0) header.mutable_frame()->Swap(&frame_.about);
  header.set_offset(static_cast<uint64_t>(offset_));
  header.set_total_bytes(static_cast<uint64_t>(data.size));
  const int64_t size = std::min(chunk_bytes_, data.size - offset_);
  const auto sum = [&, at = static_cast<const char*>(data.data) + offset_] {
    crc_ = model::Crc32c(at, static_cast<size_t>(size), crc_);
  };
  const bool last = offset_ + size == data.size;
  if (last) {
    sum();
    header.set_crc32c(crc_);
  }
  grpc::ByteBuffer message =
      WithPayload(header, v1::SubscribeResponse::kDataFieldNumber, data, offset_, size);
  offset_ += size;
  if (last) {
    frame_ = {};
    writer->PushThen(std::move(message), [self = shared_from_this()] { self->Written(); });
    return;
  }
  // gRPC sends the chunk while its checksum is computed; whichever ends last continues.
  undone_ = 2;
  const auto one_done = [self = shared_from_this()] {
    if (--self->undone_ == 0) self->PostChunk();
  };
  writer->PushThen(std::move(message), one_done);
  sum();
  one_done();
}

void FrameMessages::PostChunk() {
  Guard([&] {
    workers_->Post([self = shared_from_this()] { self->Guard([&] { self->SendChunk(); }); });
  });
}

void FrameMessages::Written() {
  busy_ = false;
  if (const auto pump = pump_.lock()) pump->Wake();
}

}  // namespace octavo::rpc
