#pragma once

// The reactors of the forms in handler.h.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/server_callback.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/mutex.h"
#include "gpu/base/size_text.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/call_gate.h"
#include "server/rpc/transport/pending_answer.h"
#include "server/rpc/transport/stall_watch.h"

namespace octavo::rpc {

/// A method, by the type of its requests: each has its own.
using Method = const google::protobuf::Descriptor*;
template <class Request>
Method MethodOf() {
  return Request::descriptor();
}

/// A failpoint of the method.
inline void PassPoint(Method method, const char* where) {
  if (FailpointArmed()) [[unlikely]]
    (void)Failpoint(absl::StrCat(method->name(), where).c_str());
}

/// Runs a piece of work for a call (returns absl::Status); an exception becomes the answer.
template <class Work>
absl::Status Guarded(Work&& work) noexcept {
  const FailpointScope scope;
  return base::ExceptionToStatus(work);
}

/// A unary call that is answered once, with Answer. It deletes itself when gRPC is done with it.
class UnaryReply final : public grpc::ServerUnaryReactor {
 public:
  UnaryReply(grpc::CallbackServerContext* context, const google::protobuf::Message* response)
      : answer_(context, response) {}
  void Answer(grpc::Status status) { Finish(answer_.Begin(std::move(status))); }
  void OnDone() override { delete this; }

 private:
  ~UnaryReply() override = default;
  PendingAnswer answer_;
};

/// A unary call whose answer comes later, from any thread, or never: a client that goes away, or a
/// server that stops, ends it too.
class DeferredUnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  DeferredUnaryReactor(Method method, grpc::CallbackServerContext* context,
                       const google::protobuf::Message* response)
      : method_(method), answer_(context, response) {}
  /// Keeps itself alive until OnDone.
  static std::shared_ptr<DeferredUnaryReactor> Make(Method method,
                                                    grpc::CallbackServerContext* context,
                                                    const google::protobuf::Message* response) {
    (void)Failpoint("reply_made");
    auto reply = std::make_shared<DeferredUnaryReactor>(method, context, response);
    reply->self_ = reply;
    return reply;
  }
  /// Runs `answer` (returns absl::Status; may fill in the response) and finishes with its status,
  /// unless the call is over already; an error takes `report` with it, if given. Whether the client
  /// gets the answer: false if the call was over, or the answer could not be made.
  template <class F>
  bool Complete(F&& answer, const model::AdmissionReport* report = nullptr) {
    if (over_.exchange(true)) return false;
    const absl::Status status = Guarded([&]() -> absl::Status {
      PassPoint(method_, ".answer");
      return answer();
    });
    grpc::Status last = answer_.Begin(ToGrpc(status, report));
    const bool given = last.ok();
    Finish(std::move(last));
    return given;
  }
  /// Whether it was answered or has ended.
  bool over() const { return over_; }
  /// Called (once) when the client has gone away; at once if it has.
  void OnCancelled(std::function<void()> cancelled) {
    {
      MutexLock lock(mutex_);
      if (!gone_) {
        cancelled_ = std::move(cancelled);
        return;
      }
    }
    cancelled();
  }
  void OnCancel() override {
    std::function<void()> cancelled;
    {
      MutexLock lock(mutex_);
      gone_ = true;
      cancelled = std::move(cancelled_);
    }
    if (!over_.exchange(true))
      Finish(answer_.Begin(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away")));
    if (cancelled) (void)Guarded([&] { return cancelled(), absl::OkStatus(); });
  }
  void OnDone() override {
    answer_.Done();
    auto self = std::move(self_);  // may release the last reference
  }

 private:
  const Method method_;
  PendingAnswer answer_;
  std::atomic<bool> over_{false};
  Mutex mutex_;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<DeferredUnaryReactor> self_;
};

/// A stream that has ended before it began.
template <class Reactor>
class Ended final : public Reactor {
 public:
  /// Null if there is no memory even for this: then gRPC ends the call by itself.
  static Reactor* Make(const grpc::Status& status) {
    auto* stream = new (std::nothrow) Ended;
    if (stream != nullptr) stream->Finish(status);
    return stream;
  }
  void OnDone() override { delete this; }
};

/// A server stream fed from any thread: Push queues, End finishes after the queue is written. The
/// writer lives until gRPC is done with it; feeders hold a weak_ptr. gRPC calls are made without
/// locks held. The StallWatch cuts a client that does not read; until then its waiting messages are
/// bounded.
template <class Message>
class QueuedWriter : public grpc::ServerWriteReactor<Message>,
                     public std::enable_shared_from_this<QueuedWriter<Message>> {
 public:
  QueuedWriter(Method method, grpc::CallbackServerContext* context)
      : method_(method), context_(context), timer_(std::make_shared<WriteTimer>(context)) {}
  /// Keeps itself alive until OnDone.
  static std::shared_ptr<QueuedWriter> Make(Method method, grpc::CallbackServerContext* context) {
    (void)Failpoint("stream_made");
    auto writer = std::make_shared<QueuedWriter>(method, context);
    StallWatch::Add(writer->timer_);
    writer->self_ = writer;
    return writer;
  }

  /// Runs `work`, which makes messages and pushes them, on any thread; an exception ends the
  /// stream.
  template <class F>
  void Feed(F&& work) {
    const absl::Status status = Guarded([&] {
      PassPoint(method_, ".message");
      return work(), absl::OkStatus();
    });
    if (!status.ok()) End(ToGrpc(status));
  }

  /// `replace`: the message takes the place of a waiting one (progress, of which only the newest
  /// matters).
  void Push(Message message, bool replace = false) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      if (replace && !queue_.empty()) queue_.pop_back();
      queue_.push_back(std::move(message));
    }
    Advance();
  }
  /// At most one message per key (BufferEvents of one buffer) waits: `merge(waiting, news)`
  /// combines two, or returns false if then there is nothing to tell. When the waiting bytes exceed
  /// the limit of a slow client, the stream ends with RESOURCE_EXHAUSTED (SLOW_SUBSCRIBER).
  template <class Merge>
  void PushLatest(const std::string& key, Message message, Merge merge) {
    {
      MutexLock lock(mutex_);
      if (ended_) return;
      if (const auto it = places_.find(key); it != places_.end() && it->second >= written_) {
        Message& waiting = queue_[static_cast<size_t>(it->second - written_)];
        waiting_bytes_ -= static_cast<int64_t>(waiting.ByteSizeLong());
        if (!merge(waiting, std::move(message))) return Withdraw(it);
        waiting_bytes_ += static_cast<int64_t>(waiting.ByteSizeLong());
      } else {
        waiting_bytes_ += static_cast<int64_t>(message.ByteSizeLong());
        places_[key] = written_ + static_cast<int64_t>(queue_.size());
        queue_.push_back(std::move(message));
      }
      if (places_.size() > 2 * queue_.size() + 1024)
        std::erase_if(places_, [&](const auto& place) { return place.second < written_; });
      if (waiting_bytes_ > kMostWaitingBytes) {
        queue_.clear();
        places_.clear();
        ended_ = true;
        final_ = ToGrpc(WithInfo(
            absl::ResourceExhaustedError(
                absl::StrCat("the client does not read its stream: ", SizeText(waiting_bytes_),
                             " wait for it; allowed ", SizeText(kMostWaitingBytes))),
            {.reason = Reason::kSlowSubscriber, .field = "", .numbers = {{"retryable", "true"}}}));
      }
    }
    Advance();
  }
  /// As Push; `then` runs (on gRPC's thread, must not block) when the message has been written, but
  /// not if the client went away.
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
  /// Sends the headers of the answer now, unless a message has taken them along: the client
  /// knows from them that what it asked for has begun, even if there is nothing to tell yet.
  void Announce() {
    {
      MutexLock lock(mutex_);
      if (writing_ || written_ > 0 || ended_) return;
      writing_ = true;  // messages and the end wait
    }
    this->StartSendInitialMetadata();
  }
  /// Called (once) when the client has gone away or the stream is over; may block shortly.
  void OnOver(std::function<void()> over) {
    MutexLock lock(mutex_);
    over_ = std::move(over);
  }

  void OnSendInitialMetadataDone(bool) override {  // if it failed, so does the next message
    {
      MutexLock lock(mutex_);
      writing_ = false;
    }
    Advance();
  }

  void OnWriteDone(bool ok) override {
    std::function<void()> then;
    timer_->End();
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (queue_.empty()) then = std::exchange(then_, nullptr);
      if (!ok) {
        then = nullptr;
        queue_.clear();
        places_.clear();
        if (!ended_) final_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away");
        ended_ = true;
      }
    }
    if (then) Feed(then);
    Advance();
  }
  void OnCancel() override {
    RunOver();
    End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
  }
  void OnDone() override {
    timer_->Done();
    RunOver();
    auto self = std::move(self_);  // may release the last reference
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
        ++written_;
        if (!places_.empty()) {
          waiting_bytes_ -= BytesOf(current_);
          if (queue_.empty()) places_.clear();
        }
        writing_ = true;
      } else if (ended_) {
        finish = finished_ = true;
      } else {
        return;
      }
    }
    if (finish) {
      EndCall(context_, final_);
      this->Finish(final_);
    } else {
      timer_->Begin();
      this->StartWrite(&current_);
    }
  }
  /// Takes a message that waits out of the queue; its bytes are no longer counted.
  void Withdraw(std::unordered_map<std::string, int64_t>::iterator it)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t place = it->second;
    queue_.erase(queue_.begin() + (place - written_));
    places_.erase(it);
    for (auto& [key, later] : places_) later -= later > place ? 1 : 0;
  }
  void RunOver() {
    std::function<void()> over;
    {
      MutexLock lock(mutex_);
      over = std::exchange(over_, nullptr);
    }
    if (over) (void)Guarded([&] { return over(), absl::OkStatus(); });
  }

  static int64_t BytesOf(const Message& message) {
    if constexpr (std::is_base_of_v<google::protobuf::Message, Message>)
      return static_cast<int64_t>(message.ByteSizeLong());
    return 0;
  }

  static constexpr int64_t kMostWaitingBytes = 32 << 20;
  const Method method_;
  grpc::CallbackServerContext* const context_;  // valid until OnDone
  const std::shared_ptr<WriteTimer> timer_;
  Mutex mutex_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, int64_t> places_
      ABSL_GUARDED_BY(mutex_);  // of PushLatest: which message of the stream
  int64_t written_ ABSL_GUARDED_BY(mutex_) = 0, waiting_bytes_ ABSL_GUARDED_BY(mutex_) =
                                                    0;  // messages; of those of PushLatest
  Message current_;
  grpc::Status final_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false, ended_ ABSL_GUARDED_BY(mutex_) = false,
                finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> over_ ABSL_GUARDED_BY(mutex_), then_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<QueuedWriter> self_;
};

}  // namespace octavo::rpc
