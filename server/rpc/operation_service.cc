#include <algorithm>
#include <utility>
#include <vector>

#include "octavo/v1/operation.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/operation.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

struct RankedStatus {
  int64_t rank = 0;
  operation::OperationStatus status;
};

// Operations and jobs have no common number: they are ranked by the moment that they began, the
// newest first. Those of one moment keep their order.
std::vector<RankedStatus> Ranked(std::vector<operation::OperationStatus> newest_first) {
  std::vector<RankedStatus> ranked;
  ranked.reserve(newest_first.size());
  for (operation::OperationStatus& status : newest_first) {
    const int64_t moment = -status.created.monotonic_ns;
    const int64_t rank = ranked.empty() ? moment : std::max(moment, ranked.back().rank + 1);
    ranked.push_back({.rank = rank, .status = std::move(status)});
  }
  return ranked;
}

class OperationServiceImpl final : public v1::OperationService::CallbackService {
 public:
  explicit OperationServiceImpl(engine::Engine* engine)
      : operations_(engine->operations()), buffers_(engine->buffers()) {}

  ServerUnaryReactor* GetOperation(CallbackServerContext* context,
                                   const v1::GetOperationRequest* request,
                                   v1::GetOperationResponse* response) override {
    return Answer(context, request, response, [&] { return operations_.Get(request->name()); });
  }
  ServerUnaryReactor* CancelOperation(CallbackServerContext* context,
                                      const v1::CancelOperationRequest* request,
                                      v1::CancelOperationResponse* response) override {
    return Answer(context, request, response,
                  [&] { return operations_.Cancel(request->name(), PrincipalOf(*context)); });
  }

  ServerUnaryReactor* ListOperations(CallbackServerContext* context,
                                     const v1::ListOperationsRequest* request,
                                     v1::ListOperationsResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::Operation::descriptor()));
      const model::Caller caller = CallerOf(*context);
      std::vector<Status> list = operations_.List();
      std::erase_if(list,
                    [&](const Status& status) { return !buffers_.MaySee(status.target, caller); });
      FillPage<v1::Operation>(
          query,
          RowsOf<v1::Operation>(
              Ranked(std::move(list)), [](const RankedStatus& one) { return one.rank; },
              [](const RankedStatus& one, v1::Operation* row) {
                EncodeOperation(one.status, row);
              }),
          response->mutable_operations(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  ServerUnaryReactor* WaitOperation(CallbackServerContext* context,
                                    const v1::WaitOperationRequest* request,
                                    v1::WaitOperationResponse* response) override {
    return ReplyLater(
        context, request, response,
        [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const auto until, DecodeWait(*request, *context));
          const auto tell = [reply, response](const absl::StatusOr<Status>& operation) {
            reply->Complete([&] {
              if (operation.ok()) EncodeOperation(*operation, response->mutable_operation());
              return operation.status();
            });
          };
          operations_.Wait(request->name(), until, tell, [reply] { return reply->over(); });
          return absl::OkStatus();
        });
  }

  grpc::ServerWriteReactor<v1::WatchOperationResponse>* WatchOperation(
      CallbackServerContext* context, const v1::WatchOperationRequest* request) override {
    using Writer = QueuedWriter<v1::WatchOperationResponse>;
    return Stream<v1::WatchOperationResponse>(
        context, request, [&](const std::shared_ptr<Writer>& writer) -> absl::Status {
          const auto tell = [weak =
                                 std::weak_ptr(writer)](const absl::StatusOr<Status>& operation) {
            auto to = weak.lock();
            if (to == nullptr) return;
            to->Feed([&] {
              if (!operation.ok()) return to->End(ToGrpc(operation.status()));
              v1::WatchOperationResponse message;
              EncodeOperation(*operation, message.mutable_operation());
              to->Push(std::move(message), /*replace=*/true);
              if (IsFinal(operation->state)) to->End({});
            });
          };
          OCTAVO_ASSIGN_OR_RETURN(auto handle, operations_.Watch(request->name(), tell));
          writer->OnOver(
              [held = std::shared_ptr<base::Handle>(std::move(handle))] { held->Cancel(); });
          return absl::OkStatus();
        });
  }

 private:
  using Status = operation::OperationStatus;

  template <class Request, class Response, class F>
  static ServerUnaryReactor* Answer(CallbackServerContext* context, const Request* request,
                                    Response* response, F call) {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const Status operation, call());
      PassPoint(MethodOf<Request>(), ".answer");
      EncodeOperation(operation, response->mutable_operation());
      return absl::OkStatus();
    });
  }

  engine::Operations& operations_;
  buffer::BufferStore& buffers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeOperationService(engine::Engine* engine) {
  return std::make_unique<OperationServiceImpl>(engine);
}

}  // namespace octavo::rpc
