#pragma once

#include <cstdint>
#include <memory>

#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

#include "server/rpc/transport/stall_watch.h"

namespace octavo::rpc {

/// The answer of a unary call, from when gRPC has it until the peer has taken it. A peer that asks
/// and does not read leaves its answers with the server: the StallWatch cuts it in the end, and
/// until then the memory of what waits is bounded, for each peer and in all. Thread-safe.
class PendingAnswer {
 public:
  static constexpr int64_t kMostOfPeer = 64 << 20, kMostOfAll = 512 << 20;
  /// Answers up to this size are given whatever waits: a call that is refused gets one, too.
  static constexpr int64_t kSmall = 4 << 10;

  /// `context` and `response` live until Done.
  PendingAnswer(grpc::CallbackServerContext* context, const google::protobuf::Message* response);
  PendingAnswer(const PendingAnswer&) = delete;
  PendingAnswer& operator=(const PendingAnswer&) = delete;
  ~PendingAnswer() { Done(); }

  /// Begins to wait; returns what the call ends with: `status`, or RESOURCE_EXHAUSTED (SLOW_CLIENT)
  /// where the peer has not taken what it was answered before. A single answer of any size is
  /// given. Called once.
  grpc::Status Begin(grpc::Status status);
  /// The peer has taken the answer, or is gone.
  void Done();

 private:
  const google::protobuf::Message* const response_;
  const std::shared_ptr<WriteTimer> timer_;
  int64_t bytes_ = 0;
};

}  // namespace octavo::rpc
