#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
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

/// Measures how long a stream waits for a message of its client: for the first one, which names
/// what the stream feeds, and, where the stream keeps something from others meanwhile, for each
/// further one. Of the message and the end of patience exactly one is told. Thread-safe.
class MessageTimer {
 public:
  using Clock = std::chrono::steady_clock;
  /// `overdue`: ends the stream with this error; does not block, and takes no lock of the timer. If
  /// it throws, the stream has not ended, and it is called again.
  MessageTimer(std::string peer, std::function<void(const absl::Status&)> overdue)
      : peer_(std::move(peer)), overdue_(std::move(overdue)) {}
  /// The stream has begun to read.
  void Begin();
  /// A message has come, or the end of the messages. False = too late: the stream ends already.
  bool Came();
  /// The stream is about to read a further message, and will call Begin.
  void Again();

 private:
  friend class StallWatch;
  enum class State { kNotBegun, kWaiting, kCame, kOverdue, kEnded };
  /// Whether the stream has to end now; true until Ended.
  bool IsOver(Clock::time_point now, std::chrono::duration<double> patience);
  /// The stream was told.
  void Ended();
  bool WaitsForFirst();
  const std::string peer_;
  const std::function<void(const absl::Status&)> overdue_;
  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNotBegun;
  bool first_ ABSL_GUARDED_BY(mutex_) = true;
  Clock::time_point since_ ABSL_GUARDED_BY(mutex_);
};

/// Cuts calls whose peers do not read, and streams whose clients send no message. It first
/// cancels the call, which releases all its resources unless the connection itself is stuck. In
/// that case the cancellation waits behind the bytes written before, and the watch cuts the
/// connection.
class StallWatch {
 public:
  /// The timers are shared by the whole process, because streams do not know their server. If there
  /// are several servers, the shortest limit applies.
  static void Add(const std::shared_ptr<WriteTimer>& timer);
  static void Add(const std::shared_ptr<MessageTimer>& timer);

  /// The watch calls `ended` for each call that it ends, with the reason by which streams that were
  /// cut are counted, and `cut` with the peer's name (ServerContext::peer).
  StallWatch(std::chrono::duration<double> patience,
             std::function<void(const std::string& reason)> ended,
             std::function<void(const std::string& peer)> cut);

 private:
  void Look();
  void LookAtWrites();
  void LookForMessages();
  const std::chrono::duration<double> patience_;
  const std::function<void(const std::string&)> ended_;
  const std::function<void(const std::string&)> cut_;
  base::PeriodicThread thread_;
};

}  // namespace octavo::rpc
