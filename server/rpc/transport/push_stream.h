#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/call_gate.h"
#include "server/rpc/transport/reactor.h"
#include "server/rpc/transport/stall_watch.h"

namespace octavo::rpc {

/// A stream on which a client pushes messages and receives progress reports. It reads one message
/// and writes one answer at a time; the newest answer replaces one that was not written yet. After
/// the last answer it continues reading until the client half-closes, for some seconds at most, so
/// that messages sent before are counted. A client that sends no first message has its stream ended
/// (stall_watch.h). Keeps itself alive until OnDone.
class PushStreamBase : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<PushStreamBase> {
 public:
  /// `Request`: its messages; of a caller who may not push, the stream ends before it begins.
  template <class Stream, class Request, class... Args>
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Begin(
      grpc::CallbackServerContext* context, Args&&... args) {
    std::shared_ptr<PushStreamBase> stream;
    const absl::Status made = Guarded([&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(Admit(context, MethodOf<Request>()));
      (void)Failpoint("stream_made");
      stream = std::make_shared<Stream>(std::forward<Args>(args)...);
      stream->context_ = context;
      stream->caller_ = PrincipalOf(*context);
      stream->first_ = std::make_shared<MessageTimer>(
          context->peer(), [weak = stream->weak_from_this()](const absl::Status& overdue) {
            if (const auto self = weak.lock()) self->End(ToGrpc(overdue));
          });
      StallWatch::Add(stream->first_);
      return absl::OkStatus();
    });
    if (!made.ok()) {
      const grpc::Status status = ToGrpc(made);
      EndCall(context, status);
      return Ended<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>::Make(status);
    }
    stream->self_ = stream;
    stream->StartRead(&stream->incoming_);
    stream->first_->Begin();
    return stream.get();
  }

  void OnReadDone(bool ok) final {
    if (!first_->Came()) return;
    if (!ok) {  // the client sends no more: its messages count, and another connection may follow
      if (!Connected()) {
        End(NothingCame());
        return;
      }
      Tell();  // an answer may still be in flight to it
      End(grpc::Status::OK);
      return;
    }
    {
      MutexLock lock(mutex_);
      if (finished_)
        // the stream was ended during this call: gRPC may be done with it as soon as this returns
        return;
      ++taking_;  // from now on, the stream does not end before the next read has begun
    }
    const absl::Status begun = Guarded([&] { return Work(), absl::OkStatus(); });
    if (!begun.ok()) Taken(ToGrpc(begun));
  }

  void OnWriteDone(bool ok) final {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) dirty_ = false;
    }
    Advance();
  }

  void OnCancel() final { End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled")); }

  void OnDone() final {
    (void)Guarded([&] { return Disconnected(), absl::OkStatus(); });
    auto self = std::move(self_);  // this may release the last reference
  }

 protected:
  const security::Principal& caller() const { return caller_; }
  /// The first message, which names what the stream feeds.
  void RememberFirst(const google::protobuf::Message& message) { Remember(context_, message); }
  /// Handles `message` through Received. An error ends the stream.
  virtual absl::Status Take(const grpc::ByteBuffer& message) = 0;
  /// Calls TakeAndRead, now or on another thread; throws only if it never will.
  virtual void Work() { TakeAndRead(); }
  /// Whether the first message has named a port, which may have progress to report.
  virtual bool Connected() const = 0;
  virtual void Disconnected() = 0;
  struct Answer {
    grpc::Status status;  // if not OK, the stream ends with it and writes no message
    bool last = false;    // the port wants no more messages
    grpc::ByteBuffer message;
  };
  virtual Answer NextAnswer() = 0;

  void TakeAndRead() noexcept {
    const grpc::Status status = ToGrpc(Guarded([&] { return Take(incoming_); }));
    incoming_.Clear();
    Taken(status);
  }

  // There is new progress to report. Any thread, does not block.
  void Tell() {
    {
      MutexLock lock(mutex_);
      dirty_ = true;
    }
    Advance();
  }

 private:
  static grpc::Status NothingCame() noexcept {
    return ToGrpc(Guarded([] {
      return WithInfo(absl::InvalidArgumentError(
                          "the stream ended without its first message, which names what it feeds"),
                      {.reason = Reason::kProtocol, .field = "", .numbers = {}});
    }));
  }
  void Taken(const grpc::Status& status) {
    if (status.ok()) {
      StartRead(&incoming_);  // the stream cannot end while taking_ counts this message
    } else {
      End(status);
    }
    {
      MutexLock lock(mutex_);
      --taking_;
    }
    Advance();
  }
  void End(grpc::Status status) {
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      ending_ = true;
      final_ = std::move(status);
    }
    Advance();
  }

  // Performs the next step: writes, finishes or waits. Calls gRPC without the lock.
  void Advance() {
    bool finish = false;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_) return;
      if (dirty_) {
        dirty_ = false;
        writing_ = true;
      } else if (ending_ && taking_ == 0) {
        finish = finished_ = true;
      } else {
        return;
      }
    }
    if (finish) {
      EndCall(context_, final_);
      Finish(final_);
      return;
    }
    Answer answer;
    const absl::Status told = Guarded([&] { return answer = NextAnswer(), absl::OkStatus(); });
    if (!told.ok()) answer.status = ToGrpc(told);
    if (!answer.status.ok()) {
      MutexLock lock(mutex_);
      if (!ending_) final_ = answer.status;
      ending_ = true;
    }
    if (!answer.status.ok()) {
      OnWriteDone(true);  // nothing to write: proceed to the end
      return;
    }
    outgoing_ = answer.message;
    StartWrite(&outgoing_);
    if (answer.last) EndAfterGrace();
  }

  // A client that half-closes ends the stream before.
  void EndAfterGrace() {
    constexpr auto kGrace = std::chrono::seconds(5);
    {
      MutexLock lock(mutex_);
      if (ending_ || grace_begun_) return;
      grace_begun_ = true;
    }
    const absl::Status set = Guarded([&] {
      grace_alarm_.Set(std::chrono::system_clock::now() + kGrace, [weak = weak_from_this()](bool) {
        if (auto self = weak.lock()) self->End(grpc::Status::OK);
      });
      return absl::OkStatus();
    });
    if (!set.ok()) End(grpc::Status::OK);
  }

  grpc::CallbackServerContext* context_ = nullptr;  // valid until OnDone
  security::Principal caller_;                      // set by Begin, then constant
  std::shared_ptr<PushStreamBase> self_;
  std::shared_ptr<MessageTimer> first_;  // set by Begin, then constant
  grpc::ByteBuffer incoming_, outgoing_;
  Mutex mutex_;
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false, writing_ ABSL_GUARDED_BY(mutex_) = false,
              ending_ ABSL_GUARDED_BY(mutex_) = false, finished_ ABSL_GUARDED_BY(mutex_) = false,
              grace_begun_ ABSL_GUARDED_BY(mutex_) = false;
  int taking_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status final_;
  grpc::Alarm grace_alarm_;
};

}  // namespace octavo::rpc
