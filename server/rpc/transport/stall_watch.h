#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "grpcpp/server_context.h"

#include "gpu/base/mutex.h"
#include "server/base/periodic_thread.h"

namespace octavo::rpc {

/// Measures how long a peer takes to read a written message of a stream, or an answer. A peer that
/// has stopped reading (its window is 0, its process is stopped) keeps the written bytes and the
/// resources of the stream alive: memory, a lease, a place in a queue. Thread-safe.
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

/// Cuts calls whose peers do not read. It first cancels the call, which releases all its resources
/// unless the connection itself is stuck. In that case the cancellation waits behind the bytes
/// written before, and the watch cuts the connection.
class StallWatch {
 public:
  /// The timers are shared by the whole process, because streams do not know their server. If there
  /// are several servers, the shortest limit applies.
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
  base::PeriodicThread thread_;
};

}  // namespace octavo::rpc
