#include "octavo/v1/mosaic.grpc.pb.h"

#include "gpu/base/status.h"
#include "server/mosaic/mosaics.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/mosaic.h"
#include "server/rpc/handler.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class MosaicServiceImpl final : public v1::MosaicService::CallbackService {
 public:
  MosaicServiceImpl(engine::Engine* engine, base::WorkerPool* workers)
      : mosaics_(engine->mosaics()), workers_(workers) {}

  ServerUnaryReactor* RegisterTiles(CallbackServerContext* context,
                                    const v1::RegisterTilesRequest* request,
                                    v1::RegisterTilesResponse* response) override {
    return ReplyInTurn(workers_, kMostMosaics, context, request, response,
                       [this, request, response, context]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(const mosaic::RegisterTilesCall call,
                                                 DecodeRegisterTiles(*request));
                         OCTAVO_ASSIGN_OR_RETURN(
                             const TilePositions positions,
                             mosaics_.Register(call, CallerOf(*context), WhileAsked(context)));
                         PassPoint(MethodOf<v1::RegisterTilesRequest>(), ".answer");
                         EncodePositions(positions, call.spec.stage_um, response);
                         return absl::OkStatus();
                       });
  }
  ServerUnaryReactor* StitchTiles(CallbackServerContext* context,
                                  const v1::StitchTilesRequest* request,
                                  v1::StitchTilesResponse* response) override {
    return ReplyInTurn(
        workers_, kMostMosaics, context, request, response,
        [this, request, response, context]() -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const mosaic::StitchTilesCall call, DecodeStitchTiles(*request));
          OCTAVO_ASSIGN_OR_RETURN(const mosaic::StitchedTiles stitched,
                                  mosaics_.Stitch(call, CallerOf(*context), WhileAsked(context)));
          PassPoint(MethodOf<v1::StitchTilesRequest>(), ".answer");
          EncodeBuffer(stitched.buffer, response->mutable_buffer());
          EncodeVector(stitched.origin_um, response->mutable_origin_um());
          return absl::OkStatus();
        });
  }
  ServerUnaryReactor* FindZOverlap(CallbackServerContext* context,
                                   const v1::FindZOverlapRequest* request,
                                   v1::FindZOverlapResponse* response) override {
    return ReplyInTurn(workers_, kMostMosaics, context, request, response,
                       [this, request, response, context]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(
                             const ZOverlapResult found,
                             mosaics_.FindZOverlap(DecodeFindZOverlap(*request), CallerOf(*context),
                                                   WhileAsked(context)));
                         PassPoint(MethodOf<v1::FindZOverlapRequest>(), ".answer");
                         EncodeZOverlap(found, response);
                         return absl::OkStatus();
                       });
  }
  ServerUnaryReactor* StackSections(CallbackServerContext* context,
                                    const v1::StackSectionsRequest* request,
                                    v1::StackSectionsResponse* response) override {
    return ReplyInTurn(workers_, kMostMosaics, context, request, response,
                       [this, request, response, context]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(const mosaic::StackSectionsCall call,
                                                 DecodeStackSections(*request));
                         OCTAVO_ASSIGN_OR_RETURN(
                             const mosaic::StackedSections stacked,
                             mosaics_.Stack(call, CallerOf(*context), WhileAsked(context)));
                         PassPoint(MethodOf<v1::StackSectionsRequest>(), ".answer");
                         EncodeStacked(stacked, response);
                         return absl::OkStatus();
                       });
  }
  ServerUnaryReactor* ResampleTiles(CallbackServerContext* context,
                                    const v1::ResampleTilesRequest* request,
                                    v1::ResampleTilesResponse* response) override {
    return ReplyInTurn(workers_, kMostMosaics, context, request, response,
                       [this, request, response, context]() -> absl::Status {
                         OCTAVO_ASSIGN_OR_RETURN(const mosaic::ResampleTilesCall call,
                                                 DecodeResampleTiles(*request));
                         OCTAVO_ASSIGN_OR_RETURN(
                             const mosaic::ResampledBuffer resampled,
                             mosaics_.Resample(call, CallerOf(*context), WhileAsked(context)));
                         PassPoint(MethodOf<v1::ResampleTilesRequest>(), ".answer");
                         EncodeResampled(resampled, response);
                         return absl::OkStatus();
                       });
  }

 private:
  mosaic::Mosaics& mosaics_;
  base::WorkerPool* const workers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMosaicService(engine::Engine* engine,
                                                 base::WorkerPool* workers) {
  return std::make_unique<MosaicServiceImpl>(engine, workers);
}

}  // namespace octavo::rpc
