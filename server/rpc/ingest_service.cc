#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "octavo/v1/ingest.grpc.pb.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/buffer/buffer_store.h"
#include "server/rpc/caller.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/enum_name.h"
#include "server/rpc/convert/operation.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/convert/volume_import.h"
#include "server/rpc/handler.h"
#include "server/rpc/job_submission.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"
#include "server/rpc/transport/local_peer.h"
#include "server/rpc/transport/payload.h"
#include "server/rpc/transport/push_stream.h"
#include "server/source/push_projections.h"
#include "server/source/push_records.h"

namespace octavo::rpc {
namespace {

/// One connection that pushes records of a scan.
class PushStream final : public PushStreamBase {
 public:
  explicit PushStream(engine::Scans* scans) : scans_(*scans) {}

 private:
  absl::Status Take(const grpc::ByteBuffer& message) override {
    return Received<v1::PushRequest>(message, v1::PushRequest::kDataFieldNumber,
                                     [&](auto& split) { return TakeBlock(split); });
  }
  bool Connected() const override { return port_ != nullptr; }
  void Disconnected() override {
    if (port_ != nullptr) port_->Disconnect(connection_);
  }

  absl::Status TakeBlock(WithoutPayload<v1::PushRequest>& split) {
    const v1::PushRequest& request = split.message;
    const bool has_data = !split.payload.empty() || request.records() != 0;
    if (port_ == nullptr) {
      OCTAVO_RETURN_IF_ERROR(Open(request, has_data));
    } else if (!request.scan().empty()) {
      return InvalidField("scan", "is given; only the first message names the scan");
    }
    std::vector<source::SourceMark> marks;
    for (const auto& marker : request.markers()) {
      const auto record = std::min<uint64_t>(marker.record(), std::numeric_limits<int64_t>::max());
      marks.push_back({.name = marker.name(), .record = static_cast<int64_t>(record)});
    }
    if (has_data) {
      source::PushBlock block;
      block.first_record = request.first_record();
      block.records = request.records();
      block.parts.assign(split.payload.begin(), split.payload.end());
      block.owner = std::move(split.owner);
      block.marks = std::move(marks);
      OCTAVO_RETURN_IF_ERROR(port_->Offer(connection_, std::move(block)));
    } else if (!marks.empty()) {
      OCTAVO_RETURN_IF_ERROR(port_->Mark(connection_, std::move(marks)));
    }
    return request.end() ? port_->EndOfRecords(connection_) : absl::OkStatus();
  }

  absl::Status Open(const v1::PushRequest& request, bool has_data) {
    RememberFirst(request);
    if (request.scan().empty())
      return InvalidField("scan", "is empty; the first message names the scan");
    if (has_data)
      return InvalidField(
          "data", "is given in the first message; allowed once the server has given credit");
    OCTAVO_ASSIGN_OR_RETURN(auto port, scans_.OpenPush(request.scan(), caller()));
    OCTAVO_ASSIGN_OR_RETURN(const model::ScanStatus scan, scans_.Get(request.scan()));
    const model::Acquisition& a = scan.spec.acquisition;
    if (request.samples_per_record() != 0 && request.samples_per_record() != a.samples_per_record) {
      return InvalidField("samples_per_record",
                          absl::StrCat("is ", request.samples_per_record(), "; the scan has ",
                                       a.samples_per_record));
    }
    if (const v1::RawType type = EncodeRawType(a);
        request.raw_type() != v1::RAW_TYPE_UNSPECIFIED && request.raw_type() != type) {
      return InvalidField("raw_type", absl::StrCat("is ", static_cast<int>(request.raw_type()),
                                                   "; the scan has ", EnumName(type)));
    }
    port_ = std::move(port);
    connection_ = port_->Connect();
    port_->OnProgress(connection_, [weak = weak_from_this()] {
      if (auto self = weak.lock()) static_cast<PushStream&>(*self).Tell();
    });
    Tell();
    return absl::OkStatus();
  }

  Answer NextAnswer() override {
    const auto progress = port_->Progress(connection_);
    if (!progress.ok()) return {.status = ToGrpc(progress.status()), .message = {}};
    v1::PushResponse response;
    response.set_credit(static_cast<uint64_t>(progress->credit));
    response.set_next_record(static_cast<uint64_t>(progress->next_record));
    response.set_total_records(static_cast<uint64_t>(port_->total_records()));
    response.set_max_block_records(static_cast<uint32_t>(
        std::min(port_->limits().block_records, kMostPushedBytes / port_->limits().record_bytes)));
    response.set_record_bytes(static_cast<uint32_t>(port_->limits().record_bytes));
    response.set_received(static_cast<uint64_t>(progress->received));
    response.set_done(progress->done);
    EncodeSourceStatus(progress->counts, response.mutable_status());
    const grpc::Slice slice(response.SerializeAsString());
    return {.last = progress->done, .message = grpc::ByteBuffer(&slice, 1)};
  }

  engine::Scans& scans_;
  std::shared_ptr<source::PushPort> port_;  // set once, by the first message
  int64_t connection_ = 0;
};

/// One connection that pushes frames to a job. A worker copies them to their place, so that gRPC's
/// threads do not wait for memory.
class ProjectionStream final : public PushStreamBase {
 public:
  ProjectionStream(engine::Jobs* jobs, base::WorkerPool* copiers)
      : jobs_(*jobs), copiers_(copiers) {}

 private:
  void Work() override {
    copiers_->Post(
        [self = shared_from_this()] { static_cast<ProjectionStream&>(*self).TakeAndRead(); });
  }
  absl::Status Take(const grpc::ByteBuffer& message) override {
    return Received<v1::PushProjectionsRequest>(message,
                                                v1::PushProjectionsRequest::kDataFieldNumber,
                                                [&](const auto& split) { return TakeRows(split); });
  }
  bool Connected() const override { return port_ != nullptr; }
  void Disconnected() override {
    if (port_ != nullptr) port_->Disconnect(connection_);
  }

  absl::Status TakeRows(const WithoutPayload<v1::PushProjectionsRequest>& split) {
    const v1::PushProjectionsRequest& request = split.message;
    const bool has_data = request.rows() != 0 || !split.payload.empty();
    if (port_ == nullptr) {
      RememberFirst(request);
      OCTAVO_RETURN_IF_ERROR(Open(request, has_data));
      return request.end() ? port_->EndOfFrames(connection_) : absl::OkStatus();
    }
    if (!request.job().empty())
      return InvalidField("job", "is given; only the first message names the job");
    if (has_data) {
      source::PushedFrame frame;
      frame.sequence = request.sequence();
      OCTAVO_ASSIGN_OR_RETURN(frame.kind, DecodeKind(request.kind()));
      frame.angle_rad = request.angle_rad();
      frame.first_row = request.first_row();
      frame.rows = request.rows();
      frame.parts.assign(split.payload.begin(), split.payload.end());
      OCTAVO_RETURN_IF_ERROR(port_->Offer(connection_, frame));
    }
    if (request.end()) return port_->EndOfFrames(connection_);
    if (!has_data)
      return InvalidField(
          "rows",
          "is 0, and the message neither holds data nor ends the stream; allowed 1 or more");
    return absl::OkStatus();
  }

  static absl::StatusOr<storage::FrameKind> DecodeKind(v1::PushProjectionsRequest::Kind kind) {
    switch (kind) {
      case v1::PushProjectionsRequest::KIND_UNSPECIFIED:
      case v1::PushProjectionsRequest::KIND_PROJECTION: return storage::FrameKind::kProjection;
      case v1::PushProjectionsRequest::KIND_FLAT: return storage::FrameKind::kFlat;
      case v1::PushProjectionsRequest::KIND_DARK: return storage::FrameKind::kDark;
      default:
        return InvalidField("kind", absl::StrCat("is ", static_cast<int>(kind),
                                                 "; allowed PROJECTION, FLAT, DARK"));
    }
  }

  absl::Status Open(const v1::PushProjectionsRequest& request, bool has_data) {
    if (request.job().empty())
      return InvalidField("job", "is empty; the first message names the job");
    if (has_data)
      return InvalidField(
          "data", "is given in the first message; allowed once the server has given credit");
    OCTAVO_ASSIGN_OR_RETURN(port_, jobs_.OpenProjectionPush(request.job(), caller()));
    connection_ = port_->Connect();
    port_->OnProgress(connection_, [weak = weak_from_this()] {
      if (auto self = weak.lock()) static_cast<ProjectionStream&>(*self).Tell();
    });
    Tell();
    return absl::OkStatus();
  }

  Answer NextAnswer() override {
    const auto progress = port_->Progress(connection_);
    if (!progress.ok()) return {.status = ToGrpc(progress.status()), .message = {}};
    const model::PushedProjectionsSpec& spec = port_->spec();
    v1::PushProjectionsResponse response;
    response.set_credit(static_cast<uint64_t>(progress->credit));
    response.set_received(static_cast<uint64_t>(progress->received));
    response.set_next_sequence(static_cast<uint64_t>(progress->next_sequence));
    for (const auto& [first, count] : progress->missing) {
      auto* range = response.add_missing();
      range->set_first(static_cast<uint64_t>(first));
      range->set_count(static_cast<uint64_t>(count));
    }
    response.set_rows(static_cast<uint32_t>(spec.rows));
    response.set_columns(static_cast<uint32_t>(spec.columns));
    response.set_frames(static_cast<uint32_t>(spec.frames));
    response.set_dtype(static_cast<v1::Dtype>(spec.dtype));
    response.set_done(progress->done);
    const source::ProjectionPushCounts& counts = progress->counts;
    v1::ProjectionPushStatus* status = response.mutable_status();
    status->set_frames(static_cast<uint64_t>(counts.frames));
    status->set_projections(static_cast<uint64_t>(counts.projections));
    status->set_flats(static_cast<uint64_t>(counts.flats));
    status->set_darks(static_cast<uint64_t>(counts.darks));
    status->set_missing_frames(static_cast<uint64_t>(counts.missing_frames));
    status->set_gaps(static_cast<uint64_t>(counts.gaps));
    status->set_duplicate_frames(static_cast<uint64_t>(counts.duplicate_frames));
    status->set_out_of_range_frames(static_cast<uint64_t>(counts.out_of_range_frames));
    status->set_connections(static_cast<uint64_t>(counts.connections));
    status->set_connected(counts.connected);
    const grpc::Slice slice(response.SerializeAsString());
    return {.last = progress->done, .message = grpc::ByteBuffer(&slice, 1)};
  }

  engine::Jobs& jobs_;
  base::WorkerPool* const copiers_;
  std::shared_ptr<source::ProjectionPort> port_;  // set once, by the first message
  int64_t connection_ = 0;
};

void EncodeCamera(const source::CameraInfo& in, v1::CameraInfo* out) {
  out->set_id(Utf8(in.id));
  out->set_vendor(Utf8(in.vendor));
  out->set_model(Utf8(in.model));
  out->set_serial(Utf8(in.serial));
  out->set_protocol(in.protocol);
  out->set_address(in.address);
  out->set_in_use(in.in_use);
}

absl::Status CheckLocal(const exports::ExportPeer& peer, const std::string& what) {
  if (peer.local) return absl::OkStatus();
  return WithInfo(absl::PermissionDeniedError(absl::StrCat(
                      what, " of the server's host, and this call came from another host")),
                  {.reason = Reason::kNotLocal, .field = "", .numbers = {}});
}

using IngestBase = v1::IngestService::WithRawCallbackMethod_Push<
    v1::IngestService::WithRawCallbackMethod_PushProjections<
        v1::IngestService::WithCallbackMethod_OpenRing<
            v1::IngestService::WithCallbackMethod_ImportBuffer<
                v1::IngestService::WithCallbackMethod_ListCameras<
                    v1::IngestService::WithCallbackMethod_ImportVolume<
                        v1::IngestService::WithCallbackMethod_OpenDeposit<
                            v1::IngestService::Service>>>>>>>;

class IngestServiceImpl final : public IngestBase {
 public:
  IngestServiceImpl(engine::Engine* engine, SlowWork* slow, base::WorkerPool* copiers)
      : engine_(*engine),
        scans_(engine->scans()),
        jobs_(engine->jobs()),
        buffers_(engine->buffers()),
        slow_(*slow),
        copiers_(copiers) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(
      grpc::CallbackServerContext* context) override {
    return PushStreamBase::Begin<PushStream, v1::PushRequest>(context, &scans_);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PushProjections(
      grpc::CallbackServerContext* context) override {
    return PushStreamBase::Begin<ProjectionStream, v1::PushProjectionsRequest>(context, &jobs_,
                                                                               copiers_);
  }

  grpc::ServerUnaryReactor* OpenRing(grpc::CallbackServerContext* context,
                                     const v1::OpenRingRequest* request,
                                     v1::OpenRingResponse* response) override {
    const auto open = [this, context, request, response]() -> absl::Status {
      const exports::ExportPeer peer = LocalPeerOf(context->peer());
      OCTAVO_RETURN_IF_ERROR(CheckLocal(peer, "a ring is memory"));
      OCTAVO_ASSIGN_OR_RETURN(const auto ticket,
                              RingTicketFor(*request, peer.uid, PrincipalOf(*context)));
      PassPoint(MethodOf<v1::OpenRingRequest>(), ".answer");
      response->set_socket_path(ticket.path);
      response->set_ticket(ticket.nonce);
      *response->mutable_expire_time() = TimeFromNow(ticket.expires_seconds);
      response->set_total_bytes(static_cast<uint64_t>(ticket.total_bytes));
      response->set_slots(static_cast<uint32_t>(ticket.slots));
      response->set_block_records(static_cast<uint32_t>(ticket.block_records));
      response->set_record_bytes(static_cast<uint32_t>(ticket.record_bytes));
      response->set_total_records(static_cast<uint64_t>(ticket.total_records));
      return absl::OkStatus();
    };
    if (request->job().empty()) return Reply(context, request, response, open);
    // The memory of a job's ring is made with its first ticket.
    return ReplyInTurn(&slow_.jobs, kMostSubmits, context, request, response, open);
  }

  grpc::ServerUnaryReactor* ImportBuffer(grpc::CallbackServerContext* context,
                                         const v1::ImportBufferRequest* request,
                                         v1::ImportBufferResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      const exports::ExportPeer peer = LocalPeerOf(context->peer());
      OCTAVO_RETURN_IF_ERROR(CheckLocal(peer, "what is imported is memory"));
      OCTAVO_ASSIGN_OR_RETURN(const model::BufferImportSpec spec,
                              DecodeImport(*request, buffers_.device_names()));
      OCTAVO_ASSIGN_OR_RETURN(const buffer::ImportTicket ticket,
                              buffers_.Import(spec, CallerOf(*context), peer.uid));
      PassPoint(MethodOf<v1::ImportBufferRequest>(), ".answer");
      EncodeImportTicket(ticket, response);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* OpenDeposit(grpc::CallbackServerContext* context,
                                        const v1::OpenDepositRequest* request,
                                        v1::OpenDepositResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      const exports::ExportPeer peer = LocalPeerOf(context->peer());
      OCTAVO_RETURN_IF_ERROR(CheckLocal(peer, "a file that is handed over is one"));
      OCTAVO_ASSIGN_OR_RETURN(
          const handoff::Ticket ticket,
          jobs_.OpenDeposit(request->name(), context->peer(), peer.uid, PrincipalOf(*context)));
      PassPoint(MethodOf<v1::OpenDepositRequest>(), ".answer");
      response->set_socket_path(ticket.path);
      response->set_ticket(ticket.nonce);
      *response->mutable_expire_time() = TimeFromNow(ticket.expires_seconds);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListCameras(grpc::CallbackServerContext* context,
                                        const v1::ListCamerasRequest* request,
                                        v1::ListCamerasResponse* response) override {
    return ReplyOn(
        &slow_.cameras, context, request, response, [this, request, response]() -> absl::Status {
          // Before the cameras are asked, which takes a second.
          OCTAVO_ASSIGN_OR_RETURN(
              const ListQuery query,
              ListQuery::Parse(*request, *v1::CameraInfo::descriptor(), "id", "id"));
          OCTAVO_ASSIGN_OR_RETURN(std::vector<source::CameraInfo> cameras, scans_.ListCameras());
          FillPage<v1::CameraInfo>(
              query,
              [&](int64_t after, size_t most) {
                std::vector<RankedRow<v1::CameraInfo>> rows;
                for (auto i = static_cast<size_t>(std::max<int64_t>(after + 1, 0));
                     i < cameras.size() && rows.size() < most; ++i) {
                  rows.emplace_back().rank = static_cast<int64_t>(i);
                  EncodeCamera(cameras[i], &rows.back().row);
                }
                return rows;
              },
              response->mutable_cameras(), response->mutable_next_page_token());
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ImportVolume(grpc::CallbackServerContext* context,
                                         const v1::ImportVolumeRequest* request,
                                         v1::ImportVolumeResponse* response) override {
    return ReplyLater(context, request, response,
                      [&](const std::shared_ptr<DeferredUnaryReactor>& reply) -> absl::Status {
                        OCTAVO_ASSIGN_OR_RETURN(const auto until, DecodeWait(*request, *context));
                        // The request may be gone before the turn comes.
                        JobSubmission wanted{.spec = JobSpecOf(*request),
                                             .request_id = request->request_id(),
                                             .session_secret = request->session_secret(),
                                             .peer = context->peer(),
                                             .caller = CallerOf(*context)};
                        const auto turn = [this, reply, response, until,
                                           wanted = std::move(wanted)] {
                          if (!reply->over()) BeginImport(wanted, until, reply, response);
                        };
                        return slow_.jobs.TryPost(kMostSubmits, turn) ? absl::OkStatus()
                                                                      : TooManyWait(kMostSubmits);
                      });
  }

 private:
  using Until = std::optional<std::chrono::steady_clock::time_point>;

  absl::StatusOr<engine::RingTicket> RingTicketFor(const v1::OpenRingRequest& request,
                                                   std::optional<uint32_t> uid,
                                                   const security::Principal& caller) {
    if (request.scan().empty() == request.job().empty())
      return InvalidField("job", request.job().empty()
                                     ? "is empty, and so is scan; allowed one of them"
                                     : "is given, and so is scan; allowed one of them");
    if (!request.job().empty()) return jobs_.OpenRing(request.job(), request.slots(), uid, caller);
    if (request.slots() != 0)
      return FieldNotAllowed("slots", request.slots(),
                             "0 with a scan, whose source says how many there are (Ring.slots)");
    return scans_.OpenRing(request.scan(), uid, caller);
  }

  void BeginImport(const JobSubmission& wanted, const Until& until,
                   const std::shared_ptr<DeferredUnaryReactor>& reply,
                   v1::ImportVolumeResponse* response) {
    model::AdmissionReport report;
    const absl::Status status = Guarded([&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(auto place, engine_.operations().TakePlace(
                                              until, security::OwnerOf(wanted.caller.principal)));
      OCTAVO_ASSIGN_OR_RETURN(const job::JobStatus job, Submit(engine_, wanted, &report));
      engine_.operations().Wait(
          engine::OperationNameOf(job.name), until, TellOperation(reply, wanted.caller, response),
          [reply] { return reply->over(); }, std::move(place));
      return absl::OkStatus();
    });
    if (!status.ok()) reply->Complete([&] { return status; }, &report);
  }
  std::function<void(const absl::StatusOr<operation::OperationStatus>&)> TellOperation(
      const std::shared_ptr<DeferredUnaryReactor>& reply, const model::Caller& caller,
      v1::ImportVolumeResponse* response) {
    return [this, reply, caller,
            response](const absl::StatusOr<operation::OperationStatus>& operation) {
      reply->Complete([&]() -> absl::Status {
        OCTAVO_RETURN_IF_ERROR(operation.status());
        EncodeOperation(*operation, response->mutable_operation());
        if (const auto job = jobs_.Get(operation->target); job.ok() && !job->buffer.empty()) {
          const auto buffer = buffers_.Get(job->buffer, caller);
          if (buffer.ok()) EncodeBuffer(*buffer, response->mutable_buffer());
        }
        if (operation->volumes.empty()) return absl::OkStatus();
        const auto volume = engine_.volumes().Get(operation->volumes.front());
        if (volume.ok()) EncodeVolume(*volume, response->mutable_volume());
        return absl::OkStatus();
      });
    };
  }

  engine::Engine& engine_;
  engine::Scans& scans_;
  engine::Jobs& jobs_;
  buffer::BufferStore& buffers_;
  SlowWork& slow_;
  base::WorkerPool* const copiers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeIngestService(engine::Engine* engine, SlowWork* slow,
                                                 base::WorkerPool* copiers) {
  return std::make_unique<IngestServiceImpl>(engine, slow, copiers);
}

}  // namespace octavo::rpc
