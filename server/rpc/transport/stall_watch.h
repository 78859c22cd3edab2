#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "grpcpp/server_context.h"

#include "gpu/base/mutex.h"

namespace octavo::rpc {

/// The time that a peer takes for what is written to it: a message of a stream, or an answer. A
/// peer that has stopped reading (its window is 0, its process is stopped) holds what was written
/// and whatever the stream keeps: memory, a lease, a place. Thread-safe.
class WriteTimer {
 public:
  using Clock = std::chrono::steady_clock;
  /// `context` lives until Done.
  explicit WriteTimer(grpc::CallbackServerContext* context)
      : context_(context), peer_(context == nullptr ? "" : context->peer()) {}
  void Begin();
  void End();
  void Done();
  const std::string& peer() const { return peer_; }

 private:
  friend class StallWatch;
  Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);
  const std::string peer_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point since_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Cuts calls whose peers take nothing. First the call is cancelled, which lets go of all it holds
/// unless the connection itself is stuck: then the cancellation waits behind what was written
/// before, and the connection is cut.
class StallWatch {
 public:
  /// Timers of the whole process: streams do not know their server. Where it has several, the least
  /// patient one rules.
  static void Add(const std::shared_ptr<WriteTimer>& timer);

  /// The watch calls `cancelled` for each call that it cancels, and `cut` with the peer's name
  /// (ServerContext::peer).
  StallWatch(std::chrono::duration<double> patience, std::function<void()> cancelled,
             std::function<void(const std::string& peer)> cut);

 private:
  void Look();
  const std::chrono::duration<double> patience_;
  const std::function<void()> cancelled_;
  const std::function<void(const std::string&)> cut_;
  std::jthread thread_;
};

}  // namespace octavo::rpc
