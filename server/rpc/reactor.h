#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"

#include "gpu/base/mutex.h"
#include "server/rpc/status.h"

namespace octavo::rpc {

/// Runs `work` (short, returns absl::Status) and finishes a unary call with what it says. Exceptions become INTERNAL.
template <class F>
grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, F work) {
  auto* reactor = context->DefaultReactor();
  grpc::Status status;
  try {
    status = ToGrpc(work());
  } catch (const std::exception& e) {
    status = ToGrpc(absl::InternalError(e.what()));
  }
  reactor->Finish(status);
  return reactor;
}

/// A unary call whose answer comes later, from any thread, or never: a client that goes away, or a server that stops, ends it too.
class LateReply final : public grpc::ServerUnaryReactor {
 public:
  /// Keeps itself alive until OnDone.
  static std::shared_ptr<LateReply> Make() {
    auto reply = std::make_shared<LateReply>();
    reply->self_ = reply;
    return reply;
  }
  /// Runs `answer` (which may fill in the response) and finishes with what it says, unless the call is over already.
  template <class F>
  void Complete(F answer) {
    if (!over_.exchange(true)) Finish(answer());
  }
  /// Whether it was answered or has ended.
  bool over() const { return over_; }
  void OnCancel() override {
    Complete([] { return grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away"); });
  }
  void OnDone() override { auto self = std::move(self_); }  // the last reference may go here

 private:
  std::atomic<bool> over_{false};
  std::shared_ptr<LateReply> self_;
};

/// A server stream fed from any thread: Push queues, End finishes after the queue is written. The writer lives until gRPC is
/// done with it; feeders hold a weak_ptr. gRPC calls are made without locks held.
template <class Message>
class QueuedWriter : public grpc::ServerWriteReactor<Message>, public std::enable_shared_from_this<QueuedWriter<Message>> {
 public:
  /// Keeps itself alive until OnDone.
  static std::shared_ptr<QueuedWriter> Make() {
    auto writer = std::make_shared<QueuedWriter>();
    writer->self_ = writer;
    return writer;
  }

  /// `replace`: the message takes the place of a waiting one (progress, of which only the newest matters).
  void Push(Message message, bool replace = false) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      if (replace && !queue_.empty()) queue_.pop_back();
      queue_.push_back(std::move(message));
    }
    Advance();
  }
  /// Push; `then` runs (from gRPC's thread, must not block) when the message has been written, not if the client went away.
  void PushThen(Message message, std::function<void()> then) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      then_ = std::move(then);
    }
    Push(std::move(message));
  }
  void End(grpc::Status status) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      ended_ = true;
      final_ = std::move(status);
    }
    Advance();
  }
  /// Called (once) when the client has gone away or the stream is over; may block shortly.
  void OnOver(std::function<void()> over) {
    MutexLock lock(mutex_);
    over_ = std::move(over);
  }

  void OnWriteDone(bool ok) override {
    std::function<void()> then;
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (queue_.empty()) then = std::exchange(then_, nullptr);
      if (!ok) {
        then = nullptr;
        queue_.clear();
        if (!ended_) final_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away");
        ended_ = true;
      }
    }
    if (then) then();
    Advance();
  }
  void OnCancel() override {
    RunOver();
    End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
  }
  void OnDone() override {
    RunOver();
    auto self = std::move(self_);  // the last reference may go here
  }

 private:
  void Advance() {
    bool finish = false;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_) return;
      if (!queue_.empty()) {
        current_ = std::move(queue_.front());
        queue_.pop_front();
        writing_ = true;
      } else if (ended_) {
        finish = finished_ = true;
      } else {
        return;
      }
    }
    if (finish) {
      this->Finish(final_);
    } else {
      this->StartWrite(&current_);
    }
  }
  void RunOver() {
    std::function<void()> over;
    {
      MutexLock lock(mutex_);
      over = std::exchange(over_, nullptr);
    }
    if (over) over();
  }

  Mutex mutex_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  Message current_;
  grpc::Status final_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false, ended_ ABSL_GUARDED_BY(mutex_) = false, finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> over_ ABSL_GUARDED_BY(mutex_), then_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<QueuedWriter> self_;
};

}  // namespace octavo::rpc
