#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "octavo/v1/stream.grpc.pb.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/picture/picture_cache.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/frame_feed_sink.h"
#include "server/rpc/frame_messages.h"
#include "server/rpc/frame_pump.h"
#include "server/rpc/handler.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/local_peer.h"

namespace octavo::rpc {
namespace {

using StreamBase = v1::StreamService::WithRawCallbackMethod_Subscribe<
    v1::StreamService::WithCallbackMethod_OpenFrames<v1::StreamService::Service>>;

class StreamServiceImpl final : public StreamBase {
 public:
  StreamServiceImpl(engine::Engine* engine, base::WorkerPool* workers, SlowWork* slow)
      : streams_(engine->streams()),
        feeds_(engine->exports().frames()),
        workers_(workers),
        slow_(slow) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Subscribe(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* bytes) override {
    return RawStream<v1::SubscribeRequest>(
        context, bytes, [&](const auto& request, const auto& writer) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const SubscribeOptions options, DecodeSubscribe(*request));
          const auto pump = MakePump(options);
          OCTAVO_ASSIGN_OR_RETURN(auto subscription,
                                  streams_.Subscribe(options.spec, pump->NotifiesThis()));
          writer->OnOver([pump] { pump->Close(); });
          pump->Start(std::move(subscription),
                      std::make_shared<FrameMessages>(writer, pump, workers_, options.chunk_bytes));
          writer->Announce();
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* OpenFrames(grpc::CallbackServerContext* context,
                                       const v1::OpenFramesRequest* request,
                                       v1::OpenFramesResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      if (!request->has_subscription()) return InvalidField("subscription", "is not given");
      if (request->subscription().chunk_bytes() != 0) {
        return InvalidField("subscription.chunk_bytes",
                            absl::StrCat("is ", request->subscription().chunk_bytes(),
                                         "; allowed 0: a frame in shared memory has no chunks"));
      }
      OCTAVO_ASSIGN_OR_RETURN(const SubscribeOptions options,
                              DecodeSubscribe(request->subscription()));
      exports::ExportPeer peer = LocalPeerOf(context->peer());
      peer.owner = security::OwnerOf(PrincipalOf(*context));
      OCTAVO_ASSIGN_OR_RETURN(const auto feed, feeds_.Make(request->slots(), peer));
      const auto pump = MakePump(options);
      const auto frames = std::make_shared<FrameFeedSink>(feed, pump);
      OCTAVO_ASSIGN_OR_RETURN(auto subscription,
                              streams_.Subscribe(options.spec, pump->NotifiesThis()));
      absl::Cleanup refused = [&] { frames->Close(); };
      frames->Subscribed(std::move(subscription));
      feed->SetSender(frames);
      OCTAVO_ASSIGN_OR_RETURN(const handoff::Ticket ticket, feeds_.Issue(feed, peer));
      std::move(refused).Cancel();
      PassPoint(MethodOf<v1::OpenFramesRequest>(), ".answer");
      response->set_ticket(ticket.nonce);
      response->set_socket_path(ticket.path);
      *response->mutable_expire_time() = TimeFromNow(ticket.expires_seconds);
      return absl::OkStatus();
    });
  }

 private:
  std::shared_ptr<FramePump> MakePump(const SubscribeOptions& options) {
    return std::make_shared<FramePump>(
        options, workers_, slow_, pictures_,
        [&streams = streams_, spec = options.spec](const std::map<model::Product, int64_t>& shown,
                                                   FramePump::Notify notify) {
          return streams.SubscribeToLast(spec, shown, std::move(notify));
        });
  }

  engine::Streams& streams_;
  exports::FrameFeeds& feeds_;
  base::WorkerPool* const workers_;
  SlowWork* const slow_;
  const std::shared_ptr<picture::PictureCache> pictures_ =
      std::make_shared<picture::PictureCache>();
};

}  // namespace

std::unique_ptr<grpc::Service> MakeStreamService(engine::Engine* engine, base::WorkerPool* workers,
                                                 SlowWork* slow) {
  return std::make_unique<StreamServiceImpl>(engine, workers, slow);
}

}  // namespace octavo::rpc
