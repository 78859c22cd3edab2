#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "octavo/v1/volume.grpc.pb.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/handler.h"
#include "server/rpc/paging.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/piece_stream.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

using Base = v1::VolumeService::WithCallbackMethod_GetVolume<
    v1::VolumeService::WithCallbackMethod_ListVolumes<
        v1::VolumeService::WithRawCallbackMethod_ReadVolume<
            v1::VolumeService::WithCallbackMethod_HoldVolume<
                v1::VolumeService::WithCallbackMethod_CommitVolume<
                    v1::VolumeService::WithCallbackMethod_DiscardVolume<
                        v1::VolumeService::WithCallbackMethod_DeriveVolume<
                            v1::VolumeService::WithCallbackMethod_WaitVolume<
                                v1::VolumeService::WithCallbackMethod_SpillVolume<
                                    v1::VolumeService::WithCallbackMethod_RestoreVolume<
                                        v1::VolumeService::WithRawCallbackMethod_RenderVolume<
                                            v1::VolumeService::Service>>>>>>>>>>>;

class VolumeServiceImpl final : public Base {
 public:
  VolumeServiceImpl(engine::Engine* engine, SlowWork* slow)
      : volumes_(engine->volumes()),
        scans_(engine->scans()),
        jobs_(engine->jobs()),
        renders_(slow->renders) {}

  ServerUnaryReactor* GetVolume(CallbackServerContext* context, const v1::GetVolumeRequest* request,
                                v1::GetVolumeResponse* response) override {
    return Answer(context, request, response, [&] { return volumes_.Get(request->name()); });
  }
  ServerUnaryReactor* HoldVolume(CallbackServerContext* context,
                                 const v1::HoldVolumeRequest* request,
                                 v1::HoldVolumeResponse* response) override {
    return Answer(context, request, response, [&] {
      return volumes_.Hold(request->name(), request->release(), request->lease_token());
    });
  }
  ServerUnaryReactor* DiscardVolume(CallbackServerContext* context,
                                    const v1::DiscardVolumeRequest* request,
                                    v1::DiscardVolumeResponse* response) override {
    return Answer(context, request, response, [&] {
      return volumes_.Discard(request->name(), request->detach_exports(), request->lease_token());
    });
  }

  ServerUnaryReactor* ListVolumes(CallbackServerContext* context,
                                  const v1::ListVolumesRequest* request,
                                  v1::ListVolumesResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      std::vector<int> states(request->states().begin(), request->states().end());
      for (const int state : states) {
        if (!v1::VolumeState_IsValid(state))
          return InvalidField("states", absl::StrCat("has the unknown value ", state));
      }
      if (states.empty())
        states = {v1::VOLUME_STATE_ACQUIRING, v1::VOLUME_STATE_HELD, v1::VOLUME_STATE_COMMITTING};
      const bool in_memory = std::all_of(states.begin(), states.end(), [](int state) {
        return state == v1::VOLUME_STATE_ACQUIRING || state == v1::VOLUME_STATE_HELD ||
               state == v1::VOLUME_STATE_COMMITTING;
      });
      auto volumes = volumes_.List({.scan = request->scan(), .in_memory = in_memory});
      if (volumes.empty() && !request->scan().empty())
        OCTAVO_RETURN_IF_ERROR(CheckScan(request->scan()));
      std::erase_if(volumes, [&](const model::VolumeStatus& volume) {
        return std::find(states.begin(), states.end(), static_cast<int>(volume.state)) ==
               states.end();
      });
      OCTAVO_ASSIGN_OR_RETURN(const Page page,
                              PageOf(request->page_size(), request->page_token(), volumes.size()));
      for (size_t i = page.begin; i < page.end; ++i)
        EncodeVolume(volumes[i], response->add_volumes());
      response->set_next_page_token(page.next_token);
      return absl::OkStatus();
    });
  }

  /// NotFound for an unknown scan or job without volumes: a misspelt name must not look like a scan
  /// without volumes.
  absl::Status CheckScan(const std::string& scan) {
    if (scans_.Get(scan).ok() || jobs_.Get(scan).ok() ||
        !volumes_.List({.scan = scan, .in_memory = false}).empty())
      return absl::OkStatus();
    return WithInfo(absl::NotFoundError(absl::StrCat("no scan or job ", scan)),
                    {.reason = Reason::kNoScan, .field = "scan", .numbers = {}});
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadVolume(CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes) override {
    return RawStream<v1::ReadVolumeRequest>(
        context, bytes, [&](const auto& request, const auto& writer) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const int64_t chunk_bytes,
                                  DecodeChunkBytes(request->chunk_bytes()));
          OCTAVO_ASSIGN_OR_RETURN(
              auto reader,
              volumes_.Read(request->name(), {request->start().begin(), request->start().end()},
                            {request->count().begin(), request->count().end()}));
          v1::ReadVolumeResponse header;
          EncodeVolume(reader->volume(), header.mutable_volume());
          for (const int64_t extent : reader->shape()) header.add_shape(extent);
          const int64_t total_bytes = reader->total_bytes();
          header.set_total_bytes(static_cast<uint64_t>(total_bytes));
          const auto next = [reader = std::move(reader),
                             chunk_bytes](PieceStream<v1::ReadVolumeResponse>::Done done) {
            reader->Next(chunk_bytes, std::move(done));
          };
          std::make_shared<PieceStream<v1::ReadVolumeResponse>>(total_bytes, writer, next)
              ->Begin(header);
          return absl::OkStatus();
        });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* RenderVolume(CallbackServerContext* context,
                                                           const grpc::ByteBuffer* bytes) override {
    return RawStream<v1::RenderVolumeRequest>(
        context, bytes, [&](const auto& request, const auto& writer) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const RenderOptions options, DecodeRender(*request));
          // Found by name before the queue: the most frequent mistake is answered at once.
          OCTAVO_RETURN_IF_ERROR(volumes_.Get(options.spec.volume).status());
          const auto gone = std::make_shared<std::atomic<bool>>(false);
          writer->OnOver([gone] { *gone = true; });
          const auto render = [&volumes = volumes_, options, gone,
                               weak = std::weak_ptr<QueuedWriter<grpc::ByteBuffer>>(writer)] {
            auto to = weak.lock();
            if (to == nullptr || *gone) return;
            to->Feed([&] {
              const absl::Status status = Render(volumes, options, *gone, to);
              if (!status.ok()) to->End(ToGrpc(status));
            });
          };
          if (renders_.TryPost(kMostRenders, render)) return absl::OkStatus();
          return WithInfo(
              absl::ResourceExhaustedError(absl::StrCat("the server renders ", kMostRenders,
                                                        " pictures already; try again")),
              {.reason = Reason::kBusy,
               .field = "",
               .numbers = {{"waiting", absl::StrCat(kMostRenders)}, {"retryable", "true"}}});
        });
  }

  ServerUnaryReactor* SpillVolume(CallbackServerContext* context,
                                  const v1::SpillVolumeRequest* request,
                                  v1::SpillVolumeResponse* response) override {
    return ReplyLater(
        context, request, response,
        [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
          const int tier =
              request->tier() == v1::TIER_UNSPECIFIED ? v1::TIER_DISK : request->tier();
          if (tier != v1::TIER_HOST && tier != v1::TIER_DISK) {
            return FieldNotAllowed("tier", tier, "HOST, DISK (RestoreVolume moves back)");
          }
          volumes_.Spill(request->name(), static_cast<model::Tier>(tier), Tell(reply, response),
                         request->lease_token());
          return absl::OkStatus();
        });
  }
  ServerUnaryReactor* RestoreVolume(CallbackServerContext* context,
                                    const v1::RestoreVolumeRequest* request,
                                    v1::RestoreVolumeResponse* response) override {
    return ReplyLater(context, request, response,
                      [&](const std::shared_ptr<DeferredUnaryReactor>& reply) {
                        volumes_.Restore(request->name(), Tell(reply, response));
                        return absl::OkStatus();
                      });
  }

  ServerUnaryReactor* DeriveVolume(CallbackServerContext* context,
                                   const v1::DeriveVolumeRequest* request,
                                   v1::DeriveVolumeResponse* response) override {
    return ReplyLater(context, request, response,
                      [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
                        OCTAVO_ASSIGN_OR_RETURN(const derive::DeriveSpec spec,
                                                DecodeDerive(*request));
                        return volumes_.Derive(spec, Tell(reply, response));
                      });
  }

  ServerUnaryReactor* WaitVolume(CallbackServerContext* context,
                                 const v1::WaitVolumeRequest* request,
                                 v1::WaitVolumeResponse* response) override {
    return ReplyLater(context, request, response,
                      [&](const std::shared_ptr<DeferredUnaryReactor>& reply) {
                        return volumes_.Wait(request->name(), Tell(reply, response),
                                             [reply] { return reply->over(); });
                      });
  }

  grpc::ServerWriteReactor<v1::CommitVolumeResponse>* CommitVolume(
      CallbackServerContext* context, const v1::CommitVolumeRequest* request) override {
    return Stream<v1::CommitVolumeResponse>(
        context, request,
        [&](const std::shared_ptr<QueuedWriter<v1::CommitVolumeResponse>>& writer) -> absl::Status {
          OCTAVO_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
          OCTAVO_ASSIGN_OR_RETURN(const auto options,
                                  DecodeCommitOptions(request->options(), "options"));
          if (request->check_only()) {
            if (!request->name().empty())
              return InvalidField("name",
                                  "is given with check_only, which looks at the destination; "
                                  "allowed is an empty one");
            OCTAVO_RETURN_IF_ERROR(volumes_.CheckCommit(options));
            v1::CommitVolumeResponse checked;
            checked.set_stage("checked");
            writer->Push(std::move(checked));
            writer->End({});
            return absl::OkStatus();
          }
          volume::CommitCallbacks callbacks;
          callbacks.on_progress =
              [weak = std::weak_ptr(writer)](const volume::CommitProgress& progress) {
                auto to = weak.lock();
                if (to == nullptr) return;
                to->Feed([&] {
                  v1::CommitVolumeResponse message;
                  message.set_done_bytes(progress.done_bytes);
                  message.set_total_bytes(progress.total_bytes);
                  message.set_disk_bytes(progress.disk_bytes);
                  *message.mutable_elapsed() = ToDuration(progress.seconds);
                  message.set_stage(progress.stage);
                  to->Push(std::move(message), /*replace=*/true);
                });
              };
          callbacks.on_done = [this, name = request->name(), weak = std::weak_ptr(writer)](
                                  absl::StatusOr<storage::CommitOutcome> outcome) {
            auto to = weak.lock();
            if (to == nullptr) return;
            to->Feed([&] {
              if (!outcome.ok()) return to->End(ToGrpc(outcome.status()));
              v1::CommitVolumeResponse message;
              message.set_stage("done");
              message.set_done_bytes(outcome->raw_bytes);
              message.set_total_bytes(outcome->raw_bytes);
              message.set_disk_bytes(outcome->disk_bytes);
              *message.mutable_elapsed() = ToDuration(outcome->seconds);
              EncodeCommitResult(*outcome, message.mutable_result());
              if (const auto volume = volumes_.Get(name); volume.ok())
                EncodeVolume(*volume, message.mutable_volume());
              to->Push(std::move(message));
              to->End({});
            });
          };
          OCTAVO_ASSIGN_OR_RETURN(auto handle,
                                  volumes_.Commit(request->name(), options, request->request_id(),
                                                  std::move(callbacks), request->lease_token()));
          // When a client disconnects, its commit is cancelled (unless other clients wait for it,
          // too).
          writer->OnOver([handle] { handle->Cancel(); });
          return absl::OkStatus();
        });
  }

 private:
  /// Makes the picture and begins to send it.
  static absl::Status Render(engine::Volumes& volumes, const RenderOptions& options,
                             const std::atomic<bool>& gone,
                             const std::shared_ptr<QueuedWriter<grpc::ByteBuffer>>& writer) {
    OCTAVO_ASSIGN_OR_RETURN(const engine::Rendered rendered,
                            volumes.Render(options.spec, [&] { return gone.load(); }));
    if (options.image.contrast == picture::ImageOptions::Contrast::kDisplay &&
        !rendered.has_display) {
      return InvalidField("image.display_levels",
                          absl::StrCat("is given, but ", options.spec.volume,
                                       " has no display levels; allowed image.levels or "
                                       "image.percentiles"));
    }
    OCTAVO_ASSIGN_OR_RETURN(const picture::Picture picture,
                            picture::MakePicture(rendered.frame, options.image));
    v1::RenderVolumeResponse header;
    EncodeRendered(rendered, picture, options, header.mutable_picture());
    header.set_total_bytes(static_cast<uint64_t>(picture.data.size));
    const auto next = [data = picture.data, at = std::make_shared<int64_t>(0),
                       chunk =
                           options.chunk_bytes](PieceStream<v1::RenderVolumeResponse>::Done done) {
      const int64_t size = std::min(chunk, data.size - *at), from = std::exchange(*at, *at + size);
      done(model::Bytes{
          .owner = data.owner, .data = static_cast<const char*>(data.data) + from, .size = size});
    };
    std::make_shared<PieceStream<v1::RenderVolumeResponse>>(picture.data.size, writer, next)
        ->Begin(header);
    return absl::OkStatus();
  }
  /// Answers a call when the volume has reached the requested state.
  template <class Response>
  static std::function<void(absl::StatusOr<model::VolumeStatus>)> Tell(
      const std::shared_ptr<DeferredUnaryReactor>& reply, Response* response) {
    return [reply, response](const absl::StatusOr<model::VolumeStatus>& volume) {
      reply->Complete([&] {
        if (volume.ok()) EncodeVolume(*volume, response->mutable_volume());
        return volume.status();
      });
    };
  }
  template <class Request, class Response, class F>
  static ServerUnaryReactor* Answer(CallbackServerContext* context, const Request* request,
                                    Response* response, F call) {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, call());
      PassPoint(MethodOf<Request>(), ".answer");
      EncodeVolume(volume, response->mutable_volume());
      return absl::OkStatus();
    });
  }

  engine::Volumes& volumes_;
  engine::Scans& scans_;
  engine::Jobs& jobs_;
  base::WorkerPool& renders_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeVolumeService(engine::Engine* engine, SlowWork* slow) {
  return std::make_unique<VolumeServiceImpl>(engine, slow);
}

}  // namespace octavo::rpc
