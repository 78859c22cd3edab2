#include <memory>

#include "octavo/v1/access.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

void EncodeGrant(const security::Grant& in, v1::Grant* out) {
  out->set_name(in.name);
  out->set_object(in.object);
  out->set_grantee(in.grantee);
  EncodeOwner(in.owner, out);
  *out->mutable_create_time() = WallTime(in.created_unix_ns);
  *out->mutable_expire_time() = WallTime(in.expires_unix_ns);
}

class AccessServiceImpl final : public v1::AccessService::CallbackService {
 public:
  AccessServiceImpl(engine::Engine* engine, SlowWork* slow)
      : grants_(engine->grants()), buffers_(engine->buffers()), slow_(*slow) {}

  ServerUnaryReactor* CreateGrant(CallbackServerContext* context,
                                  const v1::CreateGrantRequest* request,
                                  v1::CreateGrantResponse* response) override {
    return ReplyInTurn(&slow_.grants, kMostGrants, context, request, response,
                       [this, context, request, response]() -> absl::Status {
                         OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", request->ttl()));
                         OCTAVO_ASSIGN_OR_RETURN(
                             const security::Grant grant,
                             grants_.Create({.object = request->object(),
                                             .grantee = request->grantee(),
                                             .seconds = ToSeconds(request->ttl())},
                                            CallerOf(*context)));
                         EncodeGrant(grant, response->mutable_grant());
                         return absl::OkStatus();
                       });
  }
  ServerUnaryReactor* RevokeGrant(CallbackServerContext* context,
                                  const v1::RevokeGrantRequest* request,
                                  v1::RevokeGrantResponse* response) override {
    return ReplyInTurn(&slow_.grants, kMostRevocations, context, request, response,
                       [this, context, request, response]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(
                             const security::Grant grant,
                             grants_.Revoke(request->name(), PrincipalOf(*context)));
                         EncodeGrant(grant, response->mutable_grant());
                         return absl::OkStatus();
                       });
  }
  ServerUnaryReactor* ListGrants(CallbackServerContext* context,
                                 const v1::ListGrantsRequest* request,
                                 v1::ListGrantsResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::Grant::descriptor()));
      const model::Caller caller = CallerOf(*context);
      FillPage<v1::Grant>(
          query,
          RowsSeen<v1::Grant>(
              [this](uint64_t after, size_t most) { return grants_.List(after, most); },
              [](const security::Grant& grant) { return grant.number; },
              [&](const security::Grant& grant) { return buffers_.MaySee(grant.object, caller); },
              EncodeGrant),
          response->mutable_grants(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

 private:
  engine::Grants& grants_;
  buffer::BufferStore& buffers_;
  SlowWork& slow_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAccessService(engine::Engine* engine, SlowWork* slow) {
  return std::make_unique<AccessServiceImpl>(engine, slow);
}

}  // namespace octavo::rpc
