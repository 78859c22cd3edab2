#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "grpcpp/grpcpp.h"

#include "octavo/v1/stream.grpc.pb.h"

#include "client/cpp/include/octavo/octavo.h"

namespace octavo::client {

/// Reads by gRPC's callbacks, so that gRPC answers the server's keepalive while the caller is busy
/// with a frame. Synchronous calls poll only while they wait.
class FrameStream::Impl final : public grpc::ClientReadReactor<v1::SubscribeResponse> {
 public:
  Impl(v1::StreamService::Stub* stub, v1::SubscribeRequest request);
  /// Cancels and waits until gRPC is done with it, so that it is never destroyed on gRPC's own
  /// thread, perhaps together with the channel.
  ~Impl() override;

  bool Next(Frame* frame);
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void Add(const v1::SubscribeResponse& part);

  grpc::ClientContext context_;
  const v1::SubscribeRequest request_;
  v1::SubscribeResponse part_;  // of the read that is under way
  Frame assembling_;            // touched by the read callbacks only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Frame> ready_;         // guarded by mutex_; no read is in progress while it is set
  std::optional<grpc::Status> ended_;  // guarded by mutex_; set when gRPC is done
};

}  // namespace octavo::client
