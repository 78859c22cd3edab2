#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <utility>

#include "octavo/v1/volume.grpc.pb.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/base/places_by_name.h"
#include "server/buffer/buffer_store.h"
#include "server/model/volume_states.h"
#include "server/picture/picture_budget.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"
#include "server/rpc/convert/operation.h"
#include "server/rpc/convert/volume_read.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/open_watches.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/piece_stream.h"
#include "server/rpc/volume_watch.h"

namespace octavo::rpc {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// Calls of one principal that may wait or run, of the kMostRemovals.
constexpr int kMostRemovalsOfOne = 64;
// Streams of ReadVolume of one principal. Each may stop in the middle, or make the server compute.
constexpr int kMostReadsOfOne = 256;

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
                                            v1::VolumeService::WithCallbackMethod_WatchVolumes<
                                                v1::VolumeService::
                                                    WithRawCallbackMethod_RenderVolume<
                                                        v1::VolumeService::Service>>>>>>>>>>>>>;

class VolumeServiceImpl final : public Base {
 public:
  VolumeServiceImpl(engine::Engine* engine, base::WorkerPool* workers, SlowWork* slow,
                    OpenWatches* watches, int64_t picture_bytes)
      : volumes_(engine->volumes()),
        operations_(engine->operations()),
        scans_(engine->scans()),
        jobs_(engine->jobs()),
        workers_(workers),
        renders_(slow->renders),
        removals_(slow->removals),
        watches_(watches),
        pictures_(picture_bytes) {}

  ServerUnaryReactor* GetVolume(CallbackServerContext* context, const v1::GetVolumeRequest* request,
                                v1::GetVolumeResponse* response) override {
    return Answer(context, request, response, [&] { return volumes_.Get(request->name()); });
  }
  ServerUnaryReactor* HoldVolume(CallbackServerContext* context,
                                 const v1::HoldVolumeRequest* request,
                                 v1::HoldVolumeResponse* response) override {
    return Answer(context, request, response,
                  [&] { return volumes_.Hold(request->name(), PrincipalOf(*context)); });
  }
  ServerUnaryReactor* ReleaseVolume(CallbackServerContext* context,
                                    const v1::ReleaseVolumeRequest* request,
                                    v1::ReleaseVolumeResponse* response) override {
    return AnswerWithFile(context, request, response, [this, request, context] {
      return volumes_.Release(request->name(), request->lease_token(), PrincipalOf(*context));
    });
  }
  ServerUnaryReactor* DiscardVolume(CallbackServerContext* context,
                                    const v1::DiscardVolumeRequest* request,
                                    v1::DiscardVolumeResponse* response) override {
    return AnswerWithFile(context, request, response, [this, request, context] {
      return volumes_.Discard(request->name(), request->detach_exports(), request->lease_token(),
                              PrincipalOf(*context));
    });
  }

  ServerUnaryReactor* ListVolumes(CallbackServerContext* context,
                                  const v1::ListVolumesRequest* request,
                                  v1::ListVolumesResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::Volume::descriptor()));
      OCTAVO_ASSIGN_OR_RETURN(const std::set<int> states, StatesOf(*request, query.filter()));
      const bool in_memory = std::all_of(states.begin(), states.end(), [](int state) {
        return model::InMemory(static_cast<model::VolumeState>(state));
      });
      OCTAVO_RETURN_IF_ERROR(CheckParent(request->parent()));
      const std::string parent =
          request->parent().empty() ? query.filter().Wanted("parent") : request->parent();
      if (!request->parent().empty() &&
          volumes_.List({.parent = parent, .in_memory = in_memory, .most = 1}).empty())
        OCTAVO_RETURN_IF_ERROR(CheckKnown(parent));
      FillPage<v1::Volume>(
          query,
          [&](int64_t after, size_t most) {
            return RowsAfter(after, most, parent, in_memory, states);
          },
          response->mutable_volumes(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  /// The states that a list is about.
  static absl::StatusOr<std::set<int>> StatesOf(const v1::ListVolumesRequest& request,
                                                const Filter& filter) {
    for (const int state : request.states()) {
      if (!v1::VolumeState_IsValid(state))
        return InvalidField("states", absl::StrCat("has the unknown value ", state));
    }
    if (!request.states().empty())
      return std::set<int>(request.states().begin(), request.states().end());
    std::set<int> states = {v1::VOLUME_STATE_ACQUIRING, v1::VOLUME_STATE_HELD,
                            v1::VOLUME_STATE_COMMITTING};
    if (filter.SpeaksOf("state"))
      states.insert(
          {v1::VOLUME_STATE_COMMITTED, v1::VOLUME_STATE_DISCARDED, v1::VOLUME_STATE_FAILED});
    return states;
  }

  /// As RowSource: the rank of a volume is its number.
  std::vector<RankedRow<v1::Volume>> RowsAfter(int64_t after, size_t most,
                                               const std::string& parent, bool in_memory,
                                               const std::set<int>& states) {
    std::vector<RankedRow<v1::Volume>> rows;
    volume::VolumeQuery query{.parent = parent,
                              .in_memory = in_memory,
                              .after = static_cast<uint64_t>(std::max<int64_t>(after, 0)),
                              .most = most};
    for (;;) {
      const std::vector<model::VolumeStatus> volumes = volumes_.List(query);
      for (const model::VolumeStatus& volume : volumes) {
        if (rows.size() == most) return rows;
        if (states.count(static_cast<int>(volume.state)) == 0) continue;
        rows.emplace_back().rank = static_cast<int64_t>(volume.number);
        EncodeVolume(volume, &rows.back().row);
      }
      if (volumes.size() < query.most) return rows;
      query.after = volumes.back().number;
    }
  }

  /// NotFound for an unknown scan or job without volumes: a misspelt name must not look like a scan
  /// without volumes.
  absl::Status CheckKnown(const std::string& parent) {
    if (scans_.Get(parent).ok() || jobs_.Get(parent).ok() ||
        !volumes_.List({.parent = parent, .in_memory = false, .most = 1}).empty())
      return absl::OkStatus();
    return base::NoParent(parent);
  }

  grpc::ServerWriteReactor<v1::WatchVolumesResponse>* WatchVolumes(
      CallbackServerContext* context, const v1::WatchVolumesRequest* request) override {
    return Stream<v1::WatchVolumesResponse>(
        context, request, [&](const std::shared_ptr<VolumeWatch::Writer>& writer) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(Filter filter,
                                  Filter::Parse(*v1::Volume::descriptor(), request->filter()));
          auto watch = std::make_shared<VolumeWatch>(std::move(filter), request->skip_existing(),
                                                     std::weak_ptr(writer), encoded_);
          OCTAVO_RETURN_IF_ERROR(watches_->Add(writer));
          workers_->Post([this, watch, weak = std::weak_ptr(writer)] {
            const auto tell = [watch](base::ChangeKind kind,
                                      const volume::VolumeWatchers::VolumePtr& volume) {
              watch->Tell(kind, volume);
            };
            // Held by the stream.
            if (auto to = weak.lock()) {
              to->Feed([&] { to->OnOver([handle = volumes_.Watch(tell)] {}); });
              to->Announce();
            }
          });
          return absl::OkStatus();
        });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadVolume(CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes) override {
    return RawStream<v1::ReadVolumeRequest>(
        context, bytes, [&](const auto& request, const auto& writer) -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(const int64_t chunk_bytes,
                                  DecodeChunkBytes(request->chunk_bytes()));
          OCTAVO_ASSIGN_OR_RETURN(const model::VolumeRead read, DecodeVolumeRead(*request));
          OCTAVO_ASSIGN_OR_RETURN(auto place, TakeRead(PrincipalOf(*context)));
          OCTAVO_ASSIGN_OR_RETURN(auto reader, volumes_.Read(read));
          v1::ReadVolumeResponse header;
          EncodeVolume(reader->volume(), header.mutable_volume());
          for (const int64_t extent : reader->shape()) header.add_shape(extent);
          header.set_dtype(static_cast<v1::Dtype>(reader->dtype()));
          const int64_t total_bytes = reader->total_bytes();
          header.set_total_bytes(static_cast<uint64_t>(total_bytes));
          writer->OnOver([weak = std::weak_ptr(reader)] {
            if (const auto abandoned = weak.lock()) abandoned->Abandon();
          });
          const auto next = [reader = std::move(reader), place = std::move(place),
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
          const auto render = [&volumes = volumes_, pictures = pictures_, options, gone,
                               weak = std::weak_ptr<QueuedWriter<grpc::ByteBuffer>>(writer)] {
            auto to = weak.lock();
            if (to == nullptr || *gone) return;
            to->Feed([&] {
              const absl::Status status = Render(volumes, pictures, options, *gone, to);
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

  // -- verbs that begin an operation
  ServerUnaryReactor* CommitVolume(CallbackServerContext* context,
                                   const v1::CommitVolumeRequest* request,
                                   v1::CommitVolumeResponse* response) override {
    if (request->validate_only())
      return Reply(context, request, response,
                   [&] { return CheckDestination(*request, PrincipalOf(*context)); });
    return Begin(context, request, response, [&](const auto& begun) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const auto options,
                              DecodeCommitOptions(request->options(), "options"));
      begun(volumes_.Commit(request->name(), options, RequestKeyOf(*request, *context),
                            request->lease_token(), PrincipalOf(*context)));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* SpillVolume(CallbackServerContext* context,
                                  const v1::SpillVolumeRequest* request,
                                  v1::SpillVolumeResponse* response) override {
    return Begin(context, request, response, [&](const auto& begun) -> absl::Status {
      const int tier = request->tier() == v1::TIER_UNSPECIFIED ? v1::TIER_DISK : request->tier();
      if (tier != v1::TIER_HOST && tier != v1::TIER_DISK)
        return FieldNotAllowed("tier", EnumName(request->tier()),
                               "HOST, DISK (RestoreVolume moves back)");
      begun(volumes_.Spill(request->name(), static_cast<model::Tier>(tier),
                           RequestKeyOf(*request, *context), request->lease_token(),
                           PrincipalOf(*context)));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* RestoreVolume(CallbackServerContext* context,
                                    const v1::RestoreVolumeRequest* request,
                                    v1::RestoreVolumeResponse* response) override {
    return Begin(context, request, response, [&](const auto& begun) {
      begun(volumes_.Restore(request->name(), RequestKeyOf(*request, *context),
                             PrincipalOf(*context)));
      return absl::OkStatus();
    });
  }
  ServerUnaryReactor* DeriveVolume(CallbackServerContext* context,
                                   const v1::DeriveVolumeRequest* request,
                                   v1::DeriveVolumeResponse* response) override {
    return Begin(context, request, response, [&](const auto& begun) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(derive::DeriveSpec spec, DecodeDerive(*request));
      spec.owner = security::OwnerOf(PrincipalOf(*context));
      volumes_.Derive(spec, RequestKeyOf(*request, *context), begun);
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
    return ReplyLater(context, request, response,
                      [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
                        OCTAVO_ASSIGN_OR_RETURN(const auto until, DecodeWait(*request, *context));
                        // Before the work begins: an answer that there is no place would leave it
                        // running.
                        OCTAVO_ASSIGN_OR_RETURN(
                            const auto place,
                            operations_.TakePlace(until, security::OwnerOf(PrincipalOf(*context))));
                        return verb([this, reply, response, until,
                                     place](const absl::StatusOr<std::string>& operation) {
                          const absl::Status status = Guarded([&]() -> absl::Status {
                            OCTAVO_RETURN_IF_ERROR(operation.status());
                            operations_.Wait(
                                *operation, until, TellOperation(reply, response),
                                [reply] { return reply->over(); }, place);
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
  absl::Status CheckDestination(const v1::CommitVolumeRequest& request,
                                const security::Principal& caller) {
    if (!request.name().empty())
      return InvalidField(
          "name",
          "is given with validate_only, which checks the destination alone; allowed an empty name");
    OCTAVO_ASSIGN_OR_RETURN(const auto options, DecodeCommitOptions(request.options(), "options"));
    return volumes_.CheckCommit(options, caller);
  }

  /// Makes the picture and begins to send it.
  static absl::Status Render(engine::Volumes& volumes, picture::PictureBudget pictures,
                             const RenderOptions& options, const std::atomic<bool>& gone,
                             const std::shared_ptr<QueuedWriter<grpc::ByteBuffer>>& writer) {
    std::shared_ptr<picture::PictureBudget::Share> share;
    const auto admit = [&](const engine::Rendered& planned) -> absl::Status {
      const model::Frame& frame = planned.frame;
      OCTAVO_ASSIGN_OR_RETURN(
          share, pictures.Take(picture::PeakBytesOf(frame.shape[0], frame.shape[1], frame.dtype,
                                                    options.image)));
      return absl::OkStatus();
    };
    const auto unwanted = [&] { return gone.load(); };
    OCTAVO_ASSIGN_OR_RETURN(engine::Rendered rendered,
                            volumes.Render(options.spec, unwanted, admit));
    if (options.image.contrast == picture::ImageOptions::Contrast::kDisplay &&
        !rendered.has_display) {
      return InvalidField("image.display_levels",
                          absl::StrCat("is given, but ", options.spec.volume,
                                       " has no display levels; allowed image.levels or "
                                       "image.percentiles"));
    }
    OCTAVO_ASSIGN_OR_RETURN(picture::Picture picture,
                            picture::MakePicture(rendered.frame, options.image, unwanted));
    rendered.frame.payload = {};
    share->Made(picture.data.size);
    // The share lasts until gRPC has written the last byte.
    picture.data.owner =
        std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
            share, picture.data.owner);
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
    return Reply(context, request, response, Told<Request>(response, std::move(call)));
  }
  /// Of calls that may remove the volume's file: its disk may take long, and gRPC's threads wait
  /// for nothing. A volume that gets its file just now is removed on gRPC's thread. The call is let
  /// in before anything is looked up for it.
  template <class Request, class Response, class F>
  ServerUnaryReactor* AnswerWithFile(CallbackServerContext* context, const Request* request,
                                     Response* response, F call) {
    return Unary(context, request, response, [&](UnaryReply* reply) -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(CheckBounds(*request));
      auto work = Told<Request>(response, std::move(call));
      if (!HasFile<Request>(request->name())) {
        reply->Answer(rpc::Answer(*request, work));
        return absl::OkStatus();
      }
      OCTAVO_ASSIGN_OR_RETURN(auto place, TakeRemoval(PrincipalOf(*context)));
      // The place is free before the answer is there, after which the client may call again.
      return AnswerInTurn(
          &removals_, kMostRemovals, reply, context, request,
          [work = std::move(work), place = std::move(place)]() mutable -> absl::Status {
            const auto until_done = std::move(place);
            return work();
          });
    });
  }
  template <class Request>
  bool HasFile(const std::string& volume) {
    PassPoint(MethodOf<Request>(), ".file");
    const auto status = volumes_.Get(volume);
    return status.ok() && (status->tier == model::Tier::kDisk || status->mirrored);
  }
  absl::StatusOr<std::shared_ptr<void>> TakeRemoval(const security::Principal& caller) {
    return Take(
        &removals_of_, caller, "removals",
        "calls of DiscardVolume and ReleaseVolume already that wait for the disk of the "
        "volumes' files",
        absl::StrCat(", ", kMostRemovals, " in all; wait for the answer of an earlier call"));
  }
  absl::StatusOr<std::shared_ptr<void>> TakeRead(const security::Principal& caller) {
    return Take(&reads_of_, caller, "reads", "streams of ReadVolume already",
                "; read one to its end, or end it");
  }
  static absl::StatusOr<std::shared_ptr<void>> Take(base::PlacesByName* of_callers,
                                                    const security::Principal& caller,
                                                    const char* kind, const char* what,
                                                    const std::string& instead) {
    if (auto place = of_callers->Take(caller.name); place != nullptr) return place;
    const std::string most = absl::StrCat(of_callers->most());
    return WithInfo(absl::ResourceExhaustedError(absl::StrCat(caller.name, " has ", most, " ", what,
                                                              "; allowed ", most,
                                                              " for each principal", instead)),
                    {.reason = Reason::kQuota,
                     .field = "",
                     .numbers = {{"principal", caller.name},
                                 {"kind", kind},
                                 {"used", most},
                                 {"wanted", "1"},
                                 {"allowed", most},
                                 {"retryable", "true"}}});
  }
  /// The call, then the volume in its answer.
  template <class Request, class Response, class F>
  static auto Told(Response* response, F call) {
    return [response, call = std::move(call)]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, call());
      PassPoint(MethodOf<Request>(), ".answer");
      EncodeVolume(volume, response->mutable_volume());
      return absl::OkStatus();
    };
  }

  engine::Volumes& volumes_;
  engine::Operations& operations_;
  engine::Scans& scans_;
  engine::Jobs& jobs_;
  base::WorkerPool* const workers_;
  base::WorkerPool& renders_;
  base::WorkerPool& removals_;
  base::PlacesByName removals_of_{kMostRemovalsOfOne};  // in removals_
  base::PlacesByName reads_of_{kMostReadsOfOne};
  OpenWatches* const watches_;
  const std::shared_ptr<EncodedVolumes> encoded_ = std::make_shared<EncodedVolumes>(EncodeVolume);
  picture::PictureBudget pictures_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeVolumeService(engine::Engine* engine, base::WorkerPool* workers,
                                                 SlowWork* slow, OpenWatches* watches,
                                                 int64_t picture_bytes) {
  return std::make_unique<VolumeServiceImpl>(engine, workers, slow, watches, picture_bytes);
}

}  // namespace octavo::rpc
