#pragma once

// The handling of calls. Every handler of every service runs in Handle(), through one of the forms
// below:
//
//   Reply        a unary call that is answered at once, on gRPC's thread
//   ReplyOn      a unary call that a worker answers
//   ReplyInTurn  a long unary call that one of a few workers answers, with a bounded queue
//   ReplyLater   a unary call answered later by a callback (DeferredUnaryReactor)
//   Stream, RawStream   a server stream (QueuedWriter)
//   Received     a message of a client's stream (PushStreamBase, WriteStream)
//
// Handle converts exceptions into the status of the call, so that no exception ends the process on
// a thread of gRPC or of the server, and every call gets an answer. The resources of a handler
// (memory, a request id, a place in a queue, a descriptor) belong to objects that release them
// during unwinding. Work that runs later for a call (a task, a callback) runs in
// DeferredUnaryReactor::Complete or QueuedWriter::Feed, which do the same.
//
// Unary answers that their peer does not read are limited in size and time (PendingAnswer), like
// the messages of a stream.
//
// Before anything else each form asks whether the caller may call the method (Admit, call_gate.h);
// streams of clients ask when they begin. Then Handle checks the request against the table of
// bounds (bounds.h).
//
// Tests make each handler fail at its points, "<Request>.begin", ".end", ".answer" and ".message"
// (gpu/base/failpoint.h).

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/worker_pool.h"
#include "server/model/status_types.h"
#include "server/rpc/convert/bounds.h"
#include "server/rpc/convert/status.h"
#include "server/rpc/transport/call_gate.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/reactor.h"
#include "server/rpc/transport/request_parts.h"

namespace octavo::rpc {

/// OK as long as somebody waits for the answer of a unary call. It is valid until the call is
/// answered.
inline std::function<absl::Status()> WhileAsked(grpc::CallbackServerContext* context) {
  return [context]() -> absl::Status {
    if (!context->IsCancelled()) return absl::OkStatus();
    return WithInfo(
        absl::CancelledError("the call was cancelled, or its deadline has passed; nothing is kept"),
        {.reason = Reason::kCancelled, .field = "", .numbers = {}});
  };
}

/// Runs `work` (returns absl::Status) for a request.
template <class Request, class Work>
absl::Status Handle(const Request& request, Work&& work) {
  return Guarded([&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(CheckBounds(request));
    PassPoint(MethodOf<Request>(), ".begin");
    OCTAVO_RETURN_IF_ERROR(work());
    PassPoint(MethodOf<Request>(), ".end");
    return absl::OkStatus();
  });
}

/// Runs Handle and returns the status of the call. `work` may take an AdmissionReport*, which is
/// attached to the answer if it explains the error.
template <class Request, class Work>
grpc::Status Answer(const Request& request, Work& work) {
  if constexpr (std::is_invocable_v<Work&, model::AdmissionReport*>) {
    model::AdmissionReport report;
    const absl::Status status = Handle(request, [&] { return work(&report); });
    return ToGrpc(status, &report);
  } else {
    return ToGrpc(Handle(request, work));
  }
}

/// Lets a call in, with its request.
template <class Request>
absl::Status AdmitWith(grpc::CallbackServerContext* context, const Request& request) {
  OCTAVO_RETURN_IF_ERROR(Admit(context, MethodOf<Request>()));
  Remember(context, request);
  return absl::OkStatus();
}

/// A call to be answered, if its caller may make it; null if there is no memory for it.
/// `begin(reply)` ensures that reply->Answer is called; if it returns an error, that is the answer.
template <class Request, class Response, class Begin>
grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, const Request* request,
                                const Response* response, Begin begin) {
  UnaryReply* reply = nullptr;
  absl::Status status = Guarded([&] {
    (void)Failpoint("reply_made");
    reply = new UnaryReply(context, response);
    return absl::OkStatus();
  });
  if (reply == nullptr) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  status = Guarded([&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(AdmitWith(context, *request));
    return begin(reply);
  });
  if (!status.ok()) reply->Answer(ToGrpc(status));
  return reply;
}

/// `work` is short.
template <class Request, class Response, class Work>
grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const Request* request,
                                const Response* response, Work work) {
  return Unary(context, request, response, [&](UnaryReply* reply) {
    reply->Answer(Answer(*request, work));
    return absl::OkStatus();
  });
}

/// `pool`: has Post. `work` must not refer to the handler's frame; the request and the response
/// live until it has answered.
template <class Pool, class Request, class Response, class Work>
grpc::ServerUnaryReactor* ReplyOn(Pool* pool, grpc::CallbackServerContext* context,
                                  const Request* request, const Response* response, Work work) {
  return Unary(context, request, response, [&](UnaryReply* reply) {
    pool->Post([reply, request, work = std::move(work)]() mutable {
      reply->Answer(Answer(*request, work));
    });
    return absl::OkStatus();
  });
}

/// RESOURCE_EXHAUSTED (BUSY): `most` calls of a kind wait or run already.
inline absl::Status TooManyWait(int most) {
  return WithInfo(absl::ResourceExhaustedError(absl::StrCat("the server works on ", most,
                                                            " such requests already; try again")),
                  {.reason = Reason::kBusy,
                   .field = "",
                   .numbers = {{"waiting", absl::StrCat(most)}, {"retryable", "true"}}});
}

/// Has one of the pool's workers answer a call that was let in. RESOURCE_EXHAUSTED (BUSY) while
/// `most` such calls wait or run.
template <class Request, class Work>
absl::Status AnswerInTurn(base::WorkerPool* pool, int most, UnaryReply* reply,
                          grpc::CallbackServerContext* context, const Request* request, Work work) {
  // Refuse at once if possible.
  OCTAVO_RETURN_IF_ERROR(CheckBounds(*request));
  auto turn = [reply, context, request, work = std::move(work)]() mutable {
    if (context->IsCancelled())
      return reply->Answer(grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone away"));
    reply->Answer(Answer(*request, work));
  };
  return pool->TryPost(most, std::move(turn)) ? absl::OkStatus() : TooManyWait(most);
}

/// `work` is long; see AnswerInTurn.
template <class Request, class Response, class Work>
grpc::ServerUnaryReactor* ReplyInTurn(base::WorkerPool* pool, int most,
                                      grpc::CallbackServerContext* context, const Request* request,
                                      const Response* response, Work work) {
  return Unary(context, request, response, [&](UnaryReply* reply) {
    return AnswerInTurn(pool, most, reply, context, request, std::move(work));
  });
}

/// `begin(reply)` begins the work and ensures that reply->Complete is called; if it returns an
/// error, that is the answer.
template <class Request, class Response, class Begin>
grpc::ServerUnaryReactor* ReplyLater(grpc::CallbackServerContext* context, const Request* request,
                                     const Response* response, Begin begin) {
  std::shared_ptr<DeferredUnaryReactor> reply;
  absl::Status status = Guarded([&] {
    reply = DeferredUnaryReactor::Make(MethodOf<Request>(), context, response);
    return absl::OkStatus();
  });
  if (reply == nullptr) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  status = Guarded([&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(AdmitWith(context, *request));
    return Handle(*request, [&] { return begin(reply); });
  });
  if (!status.ok()) reply->Complete([&] { return status; });
  return reply.get();
}

/// `begin(writer)` ensures that the writer is fed and ended; if it returns an error, the stream
/// ends with it.
template <class Message, class Request, class Begin>
grpc::ServerWriteReactor<Message>* Stream(grpc::CallbackServerContext* context,
                                          const Request* request, Begin begin) {
  std::shared_ptr<QueuedWriter<Message>> writer;
  absl::Status status = Guarded([&] {
    writer = QueuedWriter<Message>::Make(MethodOf<Request>(), context);
    return absl::OkStatus();
  });
  if (writer == nullptr) return Ended<grpc::ServerWriteReactor<Message>>::Make(ToGrpc(status));
  status = Guarded([&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(AdmitWith(context, *request));
    return Handle(*request, [&] { return begin(writer); });
  });
  if (!status.ok()) writer->End(ToGrpc(status));
  return writer.get();
}

/// The same for a request and messages in raw bytes: `begin(request, writer)`, both shared.
template <class Request, class Begin>
grpc::ServerWriteReactor<grpc::ByteBuffer>* RawStream(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* bytes, Begin begin) {
  std::shared_ptr<QueuedWriter<grpc::ByteBuffer>> writer;
  const absl::Status status = Guarded([&]() -> absl::Status {
    writer = QueuedWriter<grpc::ByteBuffer>::Make(MethodOf<Request>(), context);
    OCTAVO_RETURN_IF_ERROR(Admit(context, MethodOf<Request>()));
    auto request = std::make_shared<Request>();
    if (!ParseRequest(*bytes, request.get())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the request does not parse as ", Request::descriptor()->name()));
    }
    Remember(context, *request);
    return Handle(*request, [&] { return begin(std::shared_ptr<const Request>(request), writer); });
  });
  if (writer == nullptr)
    return Ended<grpc::ServerWriteReactor<grpc::ByteBuffer>>::Make(ToGrpc(status));
  if (!status.ok()) writer->End(ToGrpc(status));
  return writer.get();
}

/// A message of a client's stream, split from its payload: `take(message, payload, owner)`.
template <class Request, class Take>
absl::Status Received(const grpc::ByteBuffer& bytes, uint32_t payload_field, Take take) {
  return Guarded([&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(CheckParts(bytes, Request::descriptor()));
    auto split = SplitPayload<Request>(bytes, payload_field);
    if (!split.has_value()) {
      return WithInfo(absl::InvalidArgumentError(absl::StrCat(
                          "data: the message does not parse as ", Request::descriptor()->name(),
                          " with data as its last field")),
                      {.reason = Reason::kProtocol, .field = "data", .numbers = {}});
    }
    return Handle(split->message, [&]() -> absl::Status {
      int64_t carried = 0;
      for (const auto& part : split->payload) carried += static_cast<int64_t>(part.second);
      OCTAVO_RETURN_IF_ERROR(CheckPayload(
          *Request::descriptor()->FindFieldByNumber(static_cast<int>(payload_field)), carried));
      return take(*split);
    });
  });
}

}  // namespace octavo::rpc
