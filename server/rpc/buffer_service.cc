#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "octavo/v1/buffer.grpc.pb.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_mask.h"
#include "server/rpc/convert/operation.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/encoded_once.h"
#include "server/rpc/transport/local_peer.h"
#include "server/rpc/transport/open_watches.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/piece_stream.h"
#include "server/rpc/transport/stall_watch.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr uint32_t kBufferDataField = v1::WriteBufferRequest::kDataFieldNumber;

absl::Status ProtocolError(const std::string& field, const std::string& what) {
  return WithInfo(absl::InvalidArgumentError(absl::StrCat(field, ": ", what)),
                  {.reason = Reason::kProtocol, .field = field, .numbers = {}});
}

/// A client's write: a worker handles one message at a time, because it may have to wait for
/// uploads.
class WriteStream final : public grpc::ServerReadReactor<grpc::ByteBuffer>,
                          public std::enable_shared_from_this<WriteStream> {
 public:
  WriteStream(buffer::BufferStore* buffers, base::WorkerPool* workers,
              CallbackServerContext* context, grpc::ByteBuffer* response)
      : buffers_(buffers),
        workers_(workers),
        context_(context),
        caller_(CallerOf(*context)),
        response_(response) {}

  /// Keeps itself alive until OnDone.
  static grpc::ServerReadReactor<grpc::ByteBuffer>* Begin(buffer::BufferStore* buffers,
                                                          base::WorkerPool* workers,
                                                          CallbackServerContext* context,
                                                          grpc::ByteBuffer* response) {
    std::shared_ptr<WriteStream> stream;
    const absl::Status made = Guarded([&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(Admit(context, MethodOf<v1::WriteBufferRequest>()));
      (void)Failpoint("stream_made");
      stream = std::make_shared<WriteStream>(buffers, workers, context, response);
      stream->messages_ = std::make_shared<MessageTimer>(
          context->peer(), [weak = stream->weak_from_this()](const absl::Status& overdue) {
            if (const auto self = weak.lock()) self->CloseOverdue(overdue);
          });
      StallWatch::Add(stream->messages_);
      return absl::OkStatus();
    });
    if (!made.ok()) {
      const grpc::Status status = ToGrpc(made);
      EndCall(context, status);
      return Ended<grpc::ServerReadReactor<grpc::ByteBuffer>>::Make(status);
    }
    stream->self_ = stream;
    stream->StartRead(&stream->incoming_);
    stream->messages_->Begin();
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    if (!messages_->Came()) return;  // closed, or about to be
    const absl::Status posted = Guarded([&] {
      workers_->Post([self = shared_from_this(), ok] {
        ok ? self->TakeOne() : self->Close(Guarded([&] { return self->End(); }));
      });
      return absl::OkStatus();
    });
    if (!posted.ok()) Close(posted);
  }
  void OnDone() override { auto self = std::move(self_); }  // this may release the last reference

 private:
  void TakeOne() {
    const absl::Status status = Received<v1::WriteBufferRequest>(
        incoming_, kBufferDataField,
        [&](const auto& split) { return Take(split.message, split.payload); });
    incoming_.Clear();
    if (!status.ok()) return Close(status);
    // Until the next one comes, nobody else may have the buffer.
    messages_->Again();
    StartRead(&incoming_);
    messages_->Begin();
  }
  // No message is at work now, and none will be. What a writer leaves may take long.
  void CloseOverdue(const absl::Status& overdue) {
    if (writer_ == nullptr) return Close(overdue);
    workers_->Post([self = shared_from_this(), overdue] { self->Close(overdue); });
  }
  void Close(const absl::Status& status) {
    (void)Guarded([&] {
      return writer_ = nullptr, absl::OkStatus();
    });  // an unfinished write counts as broken off
    const grpc::Status last = ToGrpc(status);
    EndCall(context_, last);
    Finish(last);
  }
  absl::Status Take(const v1::WriteBufferRequest& request,
                    const std::vector<std::pair<const char*, size_t>>& payload) {
    if (writer_ == nullptr) {
      if (!request.has_header())
        return ProtocolError("header", "is missing; the first message is the header");
      if (!payload.empty())
        return ProtocolError("data", "is given in the first message, which holds the header alone");
      Remember(context_, request.header());
      OCTAVO_ASSIGN_OR_RETURN(const model::BufferWriteSpec spec,
                              DecodeWriteHeader(request.header()));
      OCTAVO_ASSIGN_OR_RETURN(writer_, buffers_->OpenWrite(spec, caller_));
      return absl::OkStatus();
    }
    if (request.has_header())
      return ProtocolError("header", "is given a second time; allowed in the first message only");
    if (payload.empty()) return ProtocolError("data", "is empty");
    return writer_->Chunk(payload);
  }

  // The client has sent everything, or is gone.
  absl::Status End() {
    if (context_->IsCancelled()) return absl::CancelledError("the client has gone away");
    if (writer_ == nullptr)
      return ProtocolError("header", "is missing; the stream ended before its first message");
    OCTAVO_ASSIGN_OR_RETURN(const model::BufferStatus written, writer_->Finish());
    PassPoint(MethodOf<v1::WriteBufferRequest>(), ".answer");
    v1::WriteBufferResponse response;
    EncodeBuffer(written, response.mutable_buffer());
    const grpc::Slice slice(response.SerializeAsString());
    *response_ = grpc::ByteBuffer(&slice, 1);
    return absl::OkStatus();
  }

  buffer::BufferStore* const buffers_;
  base::WorkerPool* const workers_;
  CallbackServerContext* const context_;
  const model::Caller caller_;
  grpc::ByteBuffer* const response_;
  std::shared_ptr<WriteStream> self_;
  std::shared_ptr<MessageTimer> messages_;  // set by Begin, then constant
  grpc::ByteBuffer incoming_;
  std::unique_ptr<buffer::BufferWriter> writer_;
};

using BufferBase = v1::BufferService::WithCallbackMethod_CreateBuffer<
    v1::BufferService::WithRawCallbackMethod_WriteBuffer<
        v1::BufferService::WithRawCallbackMethod_ReadBuffer<
            v1::BufferService::WithCallbackMethod_GetBuffer<
                v1::BufferService::WithCallbackMethod_ListBuffers<
                    v1::BufferService::WithCallbackMethod_WatchBuffers<
                        v1::BufferService::WithCallbackMethod_UpdateBuffer<
                            v1::BufferService::WithCallbackMethod_DestroyBuffer<
                                v1::BufferService::WithCallbackMethod_SyncReplicas<
                                    v1::BufferService::WithCallbackMethod_ApplyOp<
                                        v1::BufferService::WithCallbackMethod_WaitBuffer<
                                            v1::BufferService::WithCallbackMethod_CommitBuffer<
                                                v1::BufferService::Service>>>>>>>>>>>>;

class BufferServiceImpl final : public BufferBase {
 public:
  BufferServiceImpl(engine::Engine* engine, base::WorkerPool* workers, OpenWatches* watches)
      : buffers_(&engine->buffers()),
        commits_(engine->buffer_commits()),
        operations_(engine->operations()),
        workers_(workers),
        watches_(watches) {}

  ServerUnaryReactor* CreateBuffer(CallbackServerContext* context,
                                   const v1::CreateBufferRequest* request,
                                   v1::CreateBufferResponse* response) override {
    return Defer(context, request, response,
                 [this, request, context]() -> absl::StatusOr<model::BufferStatus> {
                   OCTAVO_ASSIGN_OR_RETURN(const model::BufferSpec spec,
                                           DecodeCreate(*request, buffers_->device_names()));
                   const model::Caller caller = CallerOf(*context);
                   if (!caller.key.empty() && (caller.key.size() < 16 || caller.key.size() > 128)) {
                     return InvalidField(
                         "octavo-owner-key",
                         absl::StrCat("has ", caller.key.size(), " characters; allowed 16 to 128"));
                   }
                   return buffers_->Create(spec, caller);
                 });
  }
  ServerUnaryReactor* SyncReplicas(CallbackServerContext* context,
                                   const v1::SyncReplicasRequest* request,
                                   v1::SyncReplicasResponse* response) override {
    return Defer(context, request, response, [this, request, context] {
      return buffers_->Sync(request->name(), request->source(),
                            {request->targets().begin(), request->targets().end()},
                            request->lease_token(), CallerOf(*context));
    });
  }
  ServerUnaryReactor* ApplyOp(CallbackServerContext* context, const v1::ApplyOpRequest* request,
                              v1::ApplyOpResponse* response) override {
    return Defer(context, request, response,
                 [this, request, context]() -> absl::StatusOr<model::BufferStatus> {
                   OCTAVO_ASSIGN_OR_RETURN(const model::BufferApplySpec spec,
                                           DecodeApply(*request));
                   return buffers_->Apply(spec, CallerOf(*context));
                 });
  }
  ServerUnaryReactor* GetBuffer(CallbackServerContext* context, const v1::GetBufferRequest* request,
                                v1::GetBufferResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const auto status,
                              buffers_->Get(request->name(), CallerOf(*context)));
      EncodeBuffer(status, response->mutable_buffer());
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* UpdateBuffer(CallbackServerContext* context,
                                   const v1::UpdateBufferRequest* request,
                                   v1::UpdateBufferResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(CheckLabels(request->labels()));
      OCTAVO_ASSIGN_OR_RETURN(const auto changed,
                              FieldsOfMask(request->update_mask(), {"labels", "ttl"}));
      OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", request->ttl()));
      OCTAVO_ASSIGN_OR_RETURN(
          const auto status,
          buffers_->Change({.name = request->name(),
                            .etag = request->etag(),
                            .set_labels = changed.count("labels") > 0,
                            .set_ttl = changed.count("ttl") > 0,
                            .labels = {request->labels().begin(), request->labels().end()},
                            .ttl_seconds = ToSeconds(request->ttl())},
                           CallerOf(*context)));
      EncodeBuffer(status, response->mutable_buffer());
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* DestroyBuffer(CallbackServerContext* context,
                                    const v1::DestroyBufferRequest* request,
                                    v1::DestroyBufferResponse* response) override {
    return ReplyOn(workers_, context, request, response, [this, request, context] {
      return buffers_->Destroy(request->name(), request->etag(), request->lease_token(),
                               CallerOf(*context), request->detach_exports());
    });
  }
  ServerUnaryReactor* WaitBuffer(CallbackServerContext* context,
                                 const v1::WaitBufferRequest* request,
                                 v1::WaitBufferResponse* response) override {
    return ReplyLater(context, request, response,
                      [&](const std::shared_ptr<DeferredUnaryReactor>& reply) {
                        return buffers_->Wait(
                            request->name(), CallerOf(*context),
                            [reply, response](const absl::StatusOr<model::BufferStatus>& buffer) {
                              reply->Complete([&] {
                                if (buffer.ok()) EncodeBuffer(*buffer, response->mutable_buffer());
                                return buffer.status();
                              });
                            });
                      });
  }

  ServerUnaryReactor* CommitBuffer(CallbackServerContext* context,
                                   const v1::CommitBufferRequest* request,
                                   v1::CommitBufferResponse* response) override {
    return ReplyLater(
        context, request, response,
        [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const auto until, DecodeWait(*request, *context));
          OCTAVO_ASSIGN_OR_RETURN(engine::BufferCommitSpec spec, DecodeCommitBuffer(*request));
          // Before the work begins: an answer that there is no place would leave it running.
          OCTAVO_ASSIGN_OR_RETURN(
              auto place, operations_.TakePlace(until, security::OwnerOf(PrincipalOf(*context))));
          workers_->Post([this, reply, response, until, place = std::move(place),
                          spec = std::move(spec), key = RequestKeyOf(*request, *context),
                          caller = CallerOf(*context)] {
            const absl::Status status = Guarded([&]() -> absl::Status {
              OCTAVO_ASSIGN_OR_RETURN(const std::string operation,
                                      commits_.Commit(spec, caller, key));
              operations_.Wait(
                  operation, until, TellCommit(reply, response, spec.name, caller),
                  [reply] { return reply->over(); }, place);
              return absl::OkStatus();
            });
            if (!status.ok()) reply->Complete([&] { return status; });
          });
          return absl::OkStatus();
        });
  }

  ServerUnaryReactor* ListBuffers(CallbackServerContext* context,
                                  const v1::ListBuffersRequest* request,
                                  v1::ListBuffersResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::Buffer::descriptor()));
      FillPage<v1::Buffer>(
          query,
          [this, caller = CallerOf(*context)](int64_t after, size_t most) {
            std::vector<RankedRow<v1::Buffer>> rows;
            const auto first = static_cast<uint64_t>(std::max<int64_t>(after, 0));
            for (const model::BufferStatus& buffer : buffers_->List(caller, first, most)) {
              rows.emplace_back().rank = static_cast<int64_t>(buffer.number);
              EncodeBuffer(buffer, &rows.back().row);
            }
            return rows;
          },
          response->mutable_buffers(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* WriteBuffer(CallbackServerContext* context,
                                                         grpc::ByteBuffer* response) override {
    return WriteStream::Begin(buffers_, workers_, context, response);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadBuffer(CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes) override {
    return RawStream<v1::ReadBufferRequest>(
        context, bytes, [&](const auto& request, const auto& writer) {
          workers_->Post(
              [this, request, caller = CallerOf(*context), weak = std::weak_ptr(writer)] {
                auto to = weak.lock();
                if (to == nullptr) return;
                to->Feed([&] {
                  if (const absl::Status status = Read(*request, caller, to); !status.ok())
                    to->End(ToGrpc(status));
                });
              });
          return absl::OkStatus();
        });
  }

  grpc::ServerWriteReactor<v1::WatchBuffersResponse>* WatchBuffers(
      CallbackServerContext* context, const v1::WatchBuffersRequest* request) override {
    return Stream<v1::WatchBuffersResponse>(
        context, request,
        [&](const std::shared_ptr<QueuedWriter<v1::WatchBuffersResponse>>& writer) -> absl::Status {
          OCTAVO_RETURN_IF_ERROR(watches_->Add(writer));
          workers_->Post([this, caller = CallerOf(*context), weak = std::weak_ptr(writer)] {
            const auto tell = [encoded = encoded_, weak](base::ChangeKind kind, const auto& status,
                                                         const std::string& text) {
              auto to = weak.lock();
              if (to == nullptr) return;
              to->Feed([&] {
                v1::WatchBuffersResponse event;
                event.set_kind(static_cast<v1::WatchBuffersResponse::Kind>(kind));
                *event.mutable_buffer() = *encoded->Get(status);
                event.set_text(Utf8(text));
                event.set_reason_code(EncodeReason(status->gone));
                const std::string name = event.buffer().name();
                to->PushLatest(name, std::move(event), MergeEvents);
              });
            };
            // Held by the stream; the server ends it when it stops.
            if (auto to = weak.lock()) {
              to->Feed([&] { to->OnOver([handle = buffers_->Watch(caller, tell)] {}); });
              to->Announce();
            }
          });
          return absl::OkStatus();
        });
  }

 private:
  /// Merges two events that a watcher has not read yet: it still has to learn that the buffer
  /// exists.
  static bool MergeEvents(v1::WatchBuffersResponse& waiting, v1::WatchBuffersResponse news) {
    const auto first = waiting.kind();
    const bool is_new = first == v1::WatchBuffersResponse::KIND_EXISTS ||
                        first == v1::WatchBuffersResponse::KIND_CREATED;
    waiting = std::move(news);
    if (is_new && waiting.kind() != v1::WatchBuffersResponse::KIND_GONE) waiting.set_kind(first);
    return true;
  }
  std::function<void(const absl::StatusOr<operation::OperationStatus>&)> TellCommit(
      const std::shared_ptr<DeferredUnaryReactor>& reply, v1::CommitBufferResponse* response,
      const std::string& name, const model::Caller& caller) {
    return [this, reply, response, name,
            caller](const absl::StatusOr<operation::OperationStatus>& operation) {
      reply->Complete([&]() -> absl::Status {
        OCTAVO_RETURN_IF_ERROR(operation.status());
        EncodeOperation(*operation, response->mutable_operation());
        // It may have been destroyed since.
        if (const auto buffer = buffers_->Get(name, caller); buffer.ok())
          EncodeBuffer(*buffer, response->mutable_buffer());
        return absl::OkStatus();
      });
    };
  }
  /// Answers from a worker, because it may have to free memory first.
  template <class Request, class Response, class F>
  ServerUnaryReactor* Defer(CallbackServerContext* context, const Request* request,
                            Response* response, F call) {
    return ReplyOn(workers_, context, request, response,
                   [response, call = std::move(call)]() -> absl::Status {
                     OCTAVO_ASSIGN_OR_RETURN(const model::BufferStatus buffer, call());
                     PassPoint(MethodOf<Request>(), ".answer");
                     EncodeBuffer(buffer, response->mutable_buffer());
                     return absl::OkStatus();
                   });
  }

  absl::Status Read(const v1::ReadBufferRequest& request, const model::Caller& caller,
                    const std::shared_ptr<QueuedWriter<grpc::ByteBuffer>>& to) {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t chunk_bytes, DecodeChunkBytes(request.chunk_bytes()));
    OCTAVO_ASSIGN_OR_RETURN(const model::BufferReadSpec spec, DecodeRead(request));
    OCTAVO_ASSIGN_OR_RETURN(auto reader, buffers_->OpenRead(spec, caller));
    v1::ReadBufferResponse message;
    auto* header = message.mutable_header();
    EncodeElementType(reader->type(), header->mutable_type());
    for (const int64_t extent : reader->type().dims) header->add_shape(extent);
    for (const uint64_t version : reader->versions()) header->add_versions(version);
    for (const uint32_t replica : reader->replicas()) header->add_replicas(replica);
    const int64_t total_bytes = reader->total_bytes();
    header->set_total_bytes(static_cast<uint64_t>(total_bytes));
    const auto next = [workers = workers_, reader = std::move(reader),
                       chunk_bytes](PieceStream<v1::ReadBufferResponse>::Done done) {
      workers->Post([reader, chunk_bytes, done = std::move(done)] {
        done(base::ExceptionToStatus([&] { return reader->Next(chunk_bytes); }));
      });
    };
    std::make_shared<PieceStream<v1::ReadBufferResponse>>(total_bytes, to, next)->Begin(message);
    return absl::OkStatus();
  }

  buffer::BufferStore* const buffers_;
  engine::BufferCommits& commits_;
  engine::Operations& operations_;
  base::WorkerPool* const workers_;
  OpenWatches* const watches_;
  using EncodedBuffers = EncodedOnce<model::BufferStatus, v1::Buffer>;
  const std::shared_ptr<EncodedBuffers> encoded_ = std::make_shared<EncodedBuffers>(EncodeBuffer);
};

}  // namespace

std::unique_ptr<grpc::Service> MakeBufferService(engine::Engine* engine, base::WorkerPool* workers,
                                                 OpenWatches* watches) {
  return std::make_unique<BufferServiceImpl>(engine, workers, watches);
}

}  // namespace octavo::rpc
