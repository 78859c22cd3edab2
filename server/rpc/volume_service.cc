#include <algorithm>

#include "octavo/v1/volume.grpc.pb.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/long_running.h"
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
                                        v1::VolumeService::WithCallbackMethod_ReleaseVolume<
                                            v1::VolumeService::Service>>>>>>>>>>>;

class VolumeServiceImpl final : public Base {
 public:
  explicit VolumeServiceImpl(engine::Engine* engine)
      : volumes_(engine->volumes()),
        operations_(engine->operations()),
        scans_(engine->scans()),
        jobs_(engine->jobs()) {}

  ServerUnaryReactor* GetVolume(CallbackServerContext* context, const v1::GetVolumeRequest* request,
                                v1::GetVolumeResponse* response) override {
    return Answer(context, request, response, [&] { return volumes_.Get(request->name()); });
  }
  ServerUnaryReactor* HoldVolume(CallbackServerContext* context,
                                 const v1::HoldVolumeRequest* request,
                                 v1::HoldVolumeResponse* response) override {
    return Answer(context, request, response, [&] { return volumes_.Hold(request->name()); });
  }
  ServerUnaryReactor* ReleaseVolume(CallbackServerContext* context,
                                    const v1::ReleaseVolumeRequest* request,
                                    v1::ReleaseVolumeResponse* response) override {
    return Answer(context, request, response,
                  [&] { return volumes_.Release(request->name(), request->lease_token()); });
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
      OCTAVO_RETURN_IF_ERROR(CheckParent(request->parent()));
      auto volumes = volumes_.List({.parent = request->parent(), .in_memory = in_memory});
      if (volumes.empty() && !request->parent().empty())
        OCTAVO_RETURN_IF_ERROR(CheckKnown(request->parent()));
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
  absl::Status CheckKnown(const std::string& parent) {
    if (scans_.Get(parent).ok() || jobs_.Get(parent).ok() ||
        !volumes_.List({.parent = parent, .in_memory = false}).empty())
      return absl::OkStatus();
    return base::NoParent(parent);
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

  // -- verbs that begin an operation
  ServerUnaryReactor* CommitVolume(CallbackServerContext* context,
                                   const v1::CommitVolumeRequest* request,
                                   v1::CommitVolumeResponse* response) override {
    if (request->validate_only())
      return Reply(context, request, response, [&] { return CheckDestination(*request); });
    return Begin(context, request, response, [&](const auto& begun) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const auto options,
                              DecodeCommitOptions(request->options(), "options"));
      begun(volumes_.Commit(request->name(), options, DecodeRequestKey(*request),
                            request->lease_token()));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* SpillVolume(CallbackServerContext* context,
                                  const v1::SpillVolumeRequest* request,
                                  v1::SpillVolumeResponse* response) override {
    return Begin(context, request, response, [&](const auto& begun) -> absl::Status {
      const int tier = request->tier() == v1::TIER_UNSPECIFIED ? v1::TIER_DISK : request->tier();
      if (tier != v1::TIER_HOST && tier != v1::TIER_DISK)
        return FieldNotAllowed("tier", tier, "HOST, DISK (RestoreVolume moves back)");
      begun(volumes_.Spill(request->name(), static_cast<model::Tier>(tier),
                           DecodeRequestKey(*request), request->lease_token()));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* RestoreVolume(CallbackServerContext* context,
                                    const v1::RestoreVolumeRequest* request,
                                    v1::RestoreVolumeResponse* response) override {
    return Begin(context, request, response, [&](const auto& begun) {
      begun(volumes_.Restore(request->name(), DecodeRequestKey(*request)));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* DeriveVolume(CallbackServerContext* context,
                                   const v1::DeriveVolumeRequest* request,
                                   v1::DeriveVolumeResponse* response) override {
    return Begin(context, request, response, [&](const auto& begun) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const derive::DeriveSpec spec, DecodeDerive(*request));
      volumes_.Derive(spec, DecodeRequestKey(*request), begun);
      return absl::OkStatus();
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

 private:
  /// `verb(begun)` calls begun(StatusOr<name of the operation>), at once or later; if it returns an
  /// error, that is the answer. The call answers when the operation has ended, or when the caller
  /// waits no longer.
  template <class Request, class Response, class Verb>
  ServerUnaryReactor* Begin(CallbackServerContext* context, const Request* request,
                            Response* response, Verb verb) {
    return ReplyLater(
        context, request, response,
        [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const auto until, DecodeWait(*request, *context));
          return verb([this, reply, response, until](const absl::StatusOr<std::string>& operation) {
            const absl::Status status = Guarded([&]() -> absl::Status {
              OCTAVO_RETURN_IF_ERROR(operation.status());
              operations_.Wait(*operation, until, TellOperation(reply, response),
                               [reply] { return reply->over(); });
              return absl::OkStatus();
            });
            if (!status.ok()) reply->Complete([&] { return status; });
          });
        });
  }
  template <class Response>
  std::function<void(const absl::StatusOr<operation::OperationStatus>&)> TellOperation(
      const std::shared_ptr<DeferredUnaryReactor>& reply, Response* response) {
    return [this, reply, response](const absl::StatusOr<operation::OperationStatus>& operation) {
      reply->Complete([&]() -> absl::Status {
        OCTAVO_RETURN_IF_ERROR(operation.status());
        EncodeOperation(*operation, response->mutable_operation());
        const std::string& name =
            operation->volumes.empty() ? operation->target : operation->volumes.front();
        if (const auto volume = volumes_.Get(name); volume.ok())
          EncodeVolume(*volume, response->mutable_volume());
        return absl::OkStatus();
      });
    };
  }
  absl::Status CheckDestination(const v1::CommitVolumeRequest& request) {
    if (!request.name().empty())
      return InvalidField("name",
                          "is given with validate_only, which looks at the destination; allowed is "
                          "an empty one");
    OCTAVO_ASSIGN_OR_RETURN(const auto options, DecodeCommitOptions(request.options(), "options"));
    return volumes_.CheckCommit(options);
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
  engine::Operations& operations_;
  engine::Scans& scans_;
  engine::Jobs& jobs_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeVolumeService(engine::Engine* engine) {
  return std::make_unique<VolumeServiceImpl>(engine);
}

}  // namespace octavo::rpc
