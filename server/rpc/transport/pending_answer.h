#pragma once

#include <cstdint>
#include <memory>

#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

#include "server/rpc/transport/stall_watch.h"

namespace octavo::rpc {

/// The answer of a unary call, from its hand-over to gRPC until the peer has read it. The answers
/// of a peer that sends requests but does not read pile up in the server: the StallWatch finally
/// cuts the peer, and until then this class bounds the waiting bytes, for each peer and in total.
/// Thread-safe.
class PendingAnswer {
 public:
  static constexpr int64_t kMostOfPeer = 64 << 20, kMostOfAll = 512 << 20;
  /// Answers up to this size are always sent, so that a refused call gets its error.
  static constexpr int64_t kSmall = 4 << 10;

  /// `context` and `response` live until Done.
  PendingAnswer(grpc::CallbackServerContext* context, const google::protobuf::Message* response);
  PendingAnswer(const PendingAnswer&) = delete;
  PendingAnswer& operator=(const PendingAnswer&) = delete;
  ~PendingAnswer() { Done(); }

  /// Begins to wait; returns the status of the call: `status`, or RESOURCE_EXHAUSTED (SLOW_CLIENT)
  /// if the peer has not read its earlier answers. A single answer may have any size. Called once.
  grpc::Status Begin(grpc::Status status);
  /// The peer has read the answer, or is gone.
  void Done();

 private:
  grpc::CallbackServerContext* const context_;
  const google::protobuf::Message* const response_;
  const std::shared_ptr<WriteTimer> timer_;
  int64_t bytes_ = 0;
};

}  // namespace octavo::rpc
