#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "octavo/v1/session.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/owner.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

void EncodeSession(const session::SessionStatus& in, v1::ClientSession* out) {
  out->set_name(in.name);
  out->set_client(in.client);
  EncodeOwner(in.owner, out);
  out->set_alive(in.alive);
  *out->mutable_create_time() = WallTime(in.opened);
  *out->mutable_last_seen_time() = WallTime(in.seen);
  *out->mutable_expire_time() = WallTime(in.expires);
  out->set_volumes(in.volumes);
  out->set_leases(in.leases);
  out->set_bytes(in.bytes);
}

void EncodeLease(const session::Lease& in, v1::LeaseGrant* out) {
  out->set_resource(in.resource);
  out->set_mode(static_cast<v1::LeaseMode>(in.mode));
  out->set_token(in.token);
  out->set_fence(in.fence);
  out->set_session(in.session);
  out->set_holder(in.holder);
  EncodeOwner(in.owner, out);
  if (in.expires_unix_ns != 0) *out->mutable_expire_time() = WallTime(in.expires_unix_ns);
}

absl::Status CheckText(const char* field, const std::string& text) {
  return text.size() <= 256
             ? absl::OkStatus()
             : InvalidField(field, absl::StrCat("has ", text.size(), " characters; allowed 256"));
}

class SessionServiceImpl final : public v1::SessionService::CallbackService {
 public:
  explicit SessionServiceImpl(engine::Engine* engine)
      : clients_(engine->clients()), buffers_(engine->buffers()) {}

  ServerUnaryReactor* OpenSession(CallbackServerContext* context,
                                  const v1::OpenSessionRequest* request,
                                  v1::OpenSessionResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(CheckText("client", request->client()));
      OCTAVO_ASSIGN_OR_RETURN(
          const auto opened,
          clients_.Open(request->client(), security::OwnerOf(PrincipalOf(*context))));
      EncodeSession(opened.session, response->mutable_session());
      response->set_secret(opened.secret);
      *response->mutable_heartbeat_interval() = ToDuration(clients_.config().heartbeat_seconds);
      *response->mutable_expiry() = ToDuration(clients_.config().expiry_seconds);
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* KeepAlive(CallbackServerContext* context, const v1::KeepAliveRequest* request,
                                v1::KeepAliveResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const auto session,
                              clients_.KeepAlive(request->secret(), PrincipalOf(*context)));
      EncodeSession(session, response->mutable_session());
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* CloseSession(CallbackServerContext* context,
                                   const v1::CloseSessionRequest* request,
                                   v1::CloseSessionResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const auto session,
                              clients_.Close(request->secret(), PrincipalOf(*context)));
      EncodeSession(session, response->mutable_session());
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* ListSessions(CallbackServerContext* context,
                                   const v1::ListSessionsRequest* request,
                                   v1::ListSessionsResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::ClientSession::descriptor()));
      FillPage<v1::ClientSession>(
          query,
          [this](int64_t after, size_t most) {
            std::vector<RankedRow<v1::ClientSession>> rows;
            const auto first = static_cast<uint64_t>(std::max<int64_t>(after, 0));
            for (const session::SessionStatus& session : clients_.List(first, most)) {
              rows.emplace_back().rank = static_cast<int64_t>(session.number);
              EncodeSession(session, &rows.back().row);
            }
            return rows;
          },
          response->mutable_sessions(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  ServerUnaryReactor* AcquireLease(CallbackServerContext* context,
                                   const v1::AcquireLeaseRequest* request,
                                   v1::AcquireLeaseResponse* response) override {
    return ReplyLater(
        context, request, response,
        [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
          const model::Caller caller = CallerOf(*context);
          OCTAVO_ASSIGN_OR_RETURN(const session::LeaseRequest decoded,
                                  DecodeAcquire(*request, caller.principal));
          // The request may wait in a queue: a client that disconnects leaves it.
          const uint64_t place = clients_.AcquireLease(
              decoded, caller,
              [this, reply, response](const absl::StatusOr<session::Lease>& lease) {
                const bool told = reply->Complete([&] {
                  if (lease.ok()) EncodeLease(*lease, response->mutable_lease());
                  return lease.status();
                });
                if (lease.ok() && !told)
                  // the client never learns of the lease
                  (void)clients_.leases().Release(lease->token);
              });
          reply->OnCancelled([leases = &clients_.leases(), place] { leases->Withdraw(place); });
          return absl::OkStatus();
        });
  }
  ServerUnaryReactor* RenewLease(CallbackServerContext* context,
                                 const v1::RenewLeaseRequest* request,
                                 v1::RenewLeaseResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", request->ttl()));
      const security::Principal caller = PrincipalOf(*context);
      OCTAVO_ASSIGN_OR_RETURN(
          const auto lease,
          clients_.leases().Renew(request->token(), ToSeconds(request->ttl()), &caller));
      EncodeLease(lease, response->mutable_lease());
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* ReleaseLease(CallbackServerContext* context,
                                   const v1::ReleaseLeaseRequest* request,
                                   v1::ReleaseLeaseResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      const bool by_fence = request->fence() != 0;
      if (by_fence && !request->token().empty())
        return InvalidField("fence", absl::StrCat("is ", request->fence(),
                                                  " beside a token; allowed is one of the two"));
      // Neither the request nor the answer says of what the lease is.
      if (const auto lease = by_fence ? clients_.leases().OfFence(request->fence())
                                      : clients_.leases().OfToken(request->token());
          lease.ok())
        NameObject(context, lease->resource);
      if (by_fence) return clients_.EndLease(request->fence(), CallerOf(*context));
      const security::Principal caller = PrincipalOf(*context);
      return clients_.leases().Release(request->token(), &caller);
    });
  }
  ServerUnaryReactor* ListLeases(CallbackServerContext* context,
                                 const v1::ListLeasesRequest* request,
                                 v1::ListLeasesResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(
          const ListQuery query,
          ListQuery::Parse(*request, *v1::LeaseGrant::descriptor(), "fence", "resource, fence"));
      const auto encode = [](const session::Lease& lease, v1::LeaseGrant* row) {
        EncodeLease(lease, row);
        row->clear_token();  // only the holder may know it
      };
      const auto fence = [](const session::Lease& lease) {
        return static_cast<int64_t>(lease.fence);
      };
      const model::Caller caller = CallerOf(*context);
      const auto sees = [&](const session::Lease& lease) {
        return buffers_.MaySee(lease.resource, caller);
      };
      RowSource<v1::LeaseGrant> source = RowsSeen<v1::LeaseGrant>(
          [this](uint64_t after, size_t most) { return clients_.leases().ListAfter(after, most); },
          [](const session::Lease& lease) { return lease.fence; }, sees, encode);
      if (const std::string resource = query.filter().Wanted("resource"); !resource.empty()) {
        // Those of one resource, in the order in which they were granted, are in that of their
        // fences.
        std::vector<session::Lease> list;
        if (buffers_.MaySee(resource, caller)) list = clients_.leases().List(resource);
        source = RowsOf<v1::LeaseGrant>(std::move(list), fence, encode);
      }
      FillPage<v1::LeaseGrant>(query, source, response->mutable_leases(),
                               response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

 private:
  absl::StatusOr<session::LeaseRequest> DecodeAcquire(const v1::AcquireLeaseRequest& in,
                                                      const security::Principal& caller) {
    OCTAVO_RETURN_IF_ERROR(CheckText("holder", in.holder()));
    if (!v1::LeaseMode_IsValid(in.mode()))
      return InvalidField("mode",
                          absl::StrCat("has the unknown value ", static_cast<int>(in.mode())));
    OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
    OCTAVO_RETURN_IF_ERROR(CheckDuration("wait", in.wait()));
    session::LeaseRequest out{.resource = in.resource(),
                              .mode = in.mode() == v1::LEASE_MODE_EXCLUSIVE
                                          ? session::LeaseMode::kExclusive
                                          : session::LeaseMode::kShared,
                              .session = "",
                              .holder = in.holder(),
                              .owner = security::OwnerOf(caller),
                              .seconds = ToSeconds(in.ttl()),
                              .wait_seconds = ToSeconds(in.wait())};
    if (!in.session_secret().empty()) {
      OCTAVO_ASSIGN_OR_RETURN(const auto session, clients_.Find(in.session_secret(), caller));
      out.session = session.name;
      if (out.holder.empty()) out.holder = session.client;
    } else if (ToSeconds(in.ttl()) == 0) {
      return session::NeedsTimeToLive();
    }
    return out;
  }

  engine::Clients& clients_;
  buffer::BufferStore& buffers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(engine::Engine* engine) {
  return std::make_unique<SessionServiceImpl>(engine);
}

}  // namespace octavo::rpc
