#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"

#include "server/model/checksum.h"
#include "server/model/frame.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/reactor.h"

namespace octavo::rpc {

/// Streams bytes to a client piece by piece: it requests the next piece when the last one is on the
/// wire, so that a client never holds more than two pieces of memory. gRPC sends a piece while its
/// checksum is computed; only the last one waits for it. `Response` has offset, last and crc32c;
/// its field `data` is the bytes.
template <class Response>
class PieceStream final : public std::enable_shared_from_this<PieceStream<Response>> {
 public:
  static constexpr uint32_t kDataField = Response::kDataFieldNumber;
  using Done = std::function<void(absl::StatusOr<model::Bytes>)>;

  /// `next` calls back once with the next piece, from any thread, at once or later. Only the
  /// pending piece or write keeps the stream alive, so it ends when the client has gone.
  PieceStream(int64_t total_bytes, const std::shared_ptr<QueuedWriter<grpc::ByteBuffer>>& writer,
              std::function<void(Done)> next)
      : total_bytes_(total_bytes), writer_(writer), next_(std::move(next)) {}

  void Begin(const Response& header) {
    if (auto writer = writer_.lock()) writer->Push(WithPayload(header, kDataField, {}, 0, 0));
    Continue();
  }

 private:
  void Continue() {
    next_([self = this->shared_from_this()](absl::StatusOr<model::Bytes> piece) {
      if (auto writer = self->writer_.lock())
        writer->Feed([&] { self->Send(std::move(piece), *writer); });
    });
  }
  void Send(absl::StatusOr<model::Bytes> piece, QueuedWriter<grpc::ByteBuffer>& writer) {
    if (!piece.ok()) {
      writer.End(ToGrpc(piece.status()));
      return;
    }
    const auto sum = [&] {
      crc_ = model::Crc32c(piece->data, static_cast<size_t>(piece->size), crc_);
    };
    Response header;
    header.set_offset(offset_);
    offset_ += static_cast<uint64_t>(piece->size);
    const bool last = static_cast<int64_t>(offset_) == total_bytes_;
    if (last) {
      sum();
      header.set_last(true);
      header.set_crc32c(crc_);
    }
    grpc::ByteBuffer message = WithPayload(header, kDataField, *piece, 0, piece->size);
    if (last) {
      writer.Push(std::move(message));
      writer.End({});
      return;
    }
    undone_ = 2;
    writer.PushThen(std::move(message), [self = this->shared_from_this()] { self->OneDone(); });
    sum();
    piece = model::Bytes{};  // the next one may need its memory
    OneDone();
  }
  // A piece is done with when it is written and in the checksum, in either order.
  void OneDone() {
    if (--undone_ == 0) Continue();
  }

  const int64_t total_bytes_;
  const std::weak_ptr<QueuedWriter<grpc::ByteBuffer>> writer_;
  const std::function<void(Done)> next_;
  uint64_t offset_ = 0;
  uint32_t crc_ = 0;
  std::atomic<int> undone_{0};  // of the piece under way: its write, its checksum
};

}  // namespace octavo::rpc
