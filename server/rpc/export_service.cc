#include <utility>
#include <vector>

#include "octavo/v1/export.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/export.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/local_peer.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class ExportServiceImpl final : public v1::ExportService::CallbackService {
 public:
  ExportServiceImpl(engine::Engine* engine, base::WorkerPool* workers)
      : exports_(engine->exports()), buffers_(engine->buffers()), workers_(workers) {}

  ServerUnaryReactor* Export(CallbackServerContext* context, const v1::ExportRequest* request,
                             v1::ExportResponse* response) override {
    return ReplyOn(workers_, context, request, response,
                   [this, request, response, context]() -> absl::Status {
                     const model::Caller caller = CallerOf(*context);
                     exports::ExportPeer peer = LocalPeerOf(context->peer());
                     OCTAVO_ASSIGN_OR_RETURN(peer.accept, DecodeAccept(*request));
                     peer.client = caller.client;
                     peer.owner = security::OwnerOf(caller.principal);
                     OCTAVO_ASSIGN_OR_RETURN(
                         const auto ticket, exports_.Export({.name = request->name(),
                                                             .replica = request->replica(),
                                                             .lease_token = request->lease_token(),
                                                             .lease_fence = request->lease_fence()},
                                                            caller, peer));
                     PassPoint(MethodOf<v1::ExportRequest>(), ".answer");
                     EncodeExportTicket(ticket, response);
                     return absl::OkStatus();
                   });
  }
  ServerUnaryReactor* RevokeExport(CallbackServerContext* context,
                                   const v1::RevokeExportRequest* request,
                                   v1::RevokeExportResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t count,
                              exports_.store().Revoke(request->name(), PrincipalOf(*context)));
      response->set_exports(static_cast<int32_t>(count));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* ListExports(CallbackServerContext* context,
                                  const v1::ListExportsRequest* request,
                                  v1::ListExportsResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::ExportStatus::descriptor()));
      const model::Caller caller = CallerOf(*context);
      std::vector<exports::ExportStatus> list =
          exports_.store().List(query.filter().Wanted("resource"));
      std::erase_if(list, [&](const exports::ExportStatus& status) {
        return !buffers_.MaySee(status.of, caller);
      });
      FillPage<v1::ExportStatus>(query,
                                 RowsOf<v1::ExportStatus>(
                                     std::move(list),
                                     [](const exports::ExportStatus& status) {
                                       return static_cast<int64_t>(status.number);
                                     },
                                     EncodeExport),
                                 response->mutable_exports(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

 private:
  engine::Exports& exports_;
  buffer::BufferStore& buffers_;
  base::WorkerPool* const workers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeExportService(engine::Engine* engine,
                                                 base::WorkerPool* workers) {
  return std::make_unique<ExportServiceImpl>(engine, workers);
}

}  // namespace octavo::rpc
