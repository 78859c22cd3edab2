#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "octavo/v1/source.grpc.pb.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/engine/push_port.h"
#include "server/rpc/convert.h"
#include "server/rpc/local_peer.h"
#include "server/rpc/payload.h"
#include "server/rpc/reactor.h"
#include "server/rpc/services.h"

namespace octavo::rpc {
namespace {

constexpr uint32_t kPushDataField = 15;

/// One connection that pushes. Reads a message at a time, writes one answer at a time: the newest.
class PushStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public std::enable_shared_from_this<PushStream> {
 public:
  explicit PushStream(engine::Engine* engine) : engine_(engine) {}

  /// Keeps itself alive until OnDone.
  static PushStream* Begin(engine::Engine* engine) {
    auto stream = std::make_shared<PushStream>(engine);
    stream->self_ = stream;
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has said all it will: what it sent counts, the scan waits for another connection
      if (port_ != nullptr) {
        Tell();  // an answer may still be on its way to it
      }
      End(grpc::Status::OK);
      return;
    }
    const absl::Status status = Take();
    incoming_.Clear();
    if (!status.ok()) {
      End(ToGrpc(status));
      return;
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) dirty_ = false;
    }
    Advance();
  }

  void OnCancel() override { End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled")); }

  void OnDone() override {
    if (port_ != nullptr) port_->Disconnect(connection_);
    auto self = std::move(self_);  // the last reference may go here
  }

 private:
  absl::Status Take() {
    auto split = SplitPayload<v1::PushRequest>(incoming_, kPushDataField);
    if (!split.has_value()) return absl::InvalidArgumentError("the message does not parse as PushRequest with data as its last field");
    const v1::PushRequest& request = split->message;
    if (port_ == nullptr) return Open(request, !split->payload.empty() || request.records() != 0);
    if (!request.scan().empty()) return InvalidField("scan", "is given; only the first message names the scan");
    if (request.records() != 0 || !split->payload.empty()) {
      engine::PushBlock block;
      block.first_record = request.first_record();
      block.records = request.records();
      block.parts.assign(split->payload.begin(), split->payload.end());
      block.owner = std::move(split->owner);
      for (const auto& marker : request.markers()) {
        const auto record = std::min<uint64_t>(marker.record(), std::numeric_limits<int64_t>::max());
        block.marks.push_back({.name = marker.name(), .record = static_cast<int64_t>(record)});
      }
      OCTAVO_RETURN_IF_ERROR(port_->Offer(connection_, std::move(block)));
    }
    return request.end() ? port_->EndOfRecords(connection_) : absl::OkStatus();
  }

  absl::Status Open(const v1::PushRequest& request, bool has_data) {
    if (request.scan().empty()) return InvalidField("scan", "is empty; the first message names the scan");
    if (has_data) return InvalidField("data", "is given in the first message, before there is credit");
    OCTAVO_ASSIGN_OR_RETURN(auto port, engine_->OpenPush(request.scan()));
    OCTAVO_ASSIGN_OR_RETURN(const engine::ScanStatus scan, engine_->GetScan(request.scan()));
    const engine::Acquisition& a = scan.spec.acquisition;
    if (request.samples_per_record() != 0 && request.samples_per_record() != a.samples_per_record) {
      return InvalidField("samples_per_record", absl::StrCat("is ", request.samples_per_record(), "; the scan has ", a.samples_per_record));
    }
    if (const v1::RawType type = EncodeRawType(a); request.raw_type() != v1::RAW_TYPE_UNSPECIFIED && request.raw_type() != type) {
      return InvalidField("raw_type", absl::StrCat("is ", static_cast<int>(request.raw_type()), "; the scan has ", v1::RawType_Name(type)));
    }
    port_ = std::move(port);
    connection_ = port_->Connect();
    port_->OnProgress(connection_, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Tell();
    });
    Tell();
    return absl::OkStatus();
  }

  // There is something new to say. Any thread, does not block.
  void Tell() {
    {
      MutexLock lock(mutex_);
      dirty_ = true;
    }
    Advance();
  }

  void End(grpc::Status status) {
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      ending_ = true;
      final_ = std::move(status);
    }
    Advance();
  }

  // Writes, or finishes, or waits: whatever is next. gRPC is called without the lock.
  void Advance() {
    bool finish = false;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_) return;
      if (dirty_) {
        dirty_ = false;
        writing_ = true;
      } else if (ending_) {
        finish = finished_ = true;
      } else {
        return;
      }
    }
    if (finish) {
      Finish(final_);
      return;
    }
    const auto progress = port_->Progress(connection_);
    if (!progress.ok() || progress->done) {
      MutexLock lock(mutex_);
      if (!ending_) final_ = ToGrpc(progress.status());
      ending_ = true;
    }
    if (!progress.ok()) {
      OnWriteDone(true);  // nothing to write: on to the end
      return;
    }
    v1::PushResponse response;
    response.set_credit(static_cast<uint64_t>(progress->credit));
    response.set_next_record(static_cast<uint64_t>(progress->next_record));
    response.set_total_records(static_cast<uint64_t>(port_->total_records()));
    response.set_max_block_records(static_cast<uint32_t>(port_->limits().block_records));
    response.set_record_bytes(static_cast<uint32_t>(port_->limits().record_bytes));
    response.set_received(static_cast<uint64_t>(progress->received));
    response.set_done(progress->done);
    EncodeSourceStatus(progress->counts, response.mutable_status());
    const grpc::Slice slice(response.SerializeAsString());
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&outgoing_);
  }

  engine::Engine* const engine_;
  std::shared_ptr<PushStream> self_;
  grpc::ByteBuffer incoming_, outgoing_;
  std::shared_ptr<engine::PushPort> port_;  // set once, by the first message
  int64_t connection_ = 0;
  Mutex mutex_;
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false, writing_ ABSL_GUARDED_BY(mutex_) = false, ending_ ABSL_GUARDED_BY(mutex_) = false,
              finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status final_;
};

class SourceServiceImpl final
    : public v1::SourceService::WithRawCallbackMethod_Push<
          v1::SourceService::WithCallbackMethod_OpenRing<v1::SourceService::WithCallbackMethod_ListCameras<v1::SourceService::Service>>> {
 public:
  SourceServiceImpl(engine::Engine* engine, engine::WorkerPool* workers) : engine_(engine), workers_(workers) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Push(grpc::CallbackServerContext*) override { return PushStream::Begin(engine_); }

  grpc::ServerUnaryReactor* OpenRing(grpc::CallbackServerContext* context, const v1::OpenRingRequest* request,
                                     v1::OpenRingResponse* response) override {
    auto* reactor = context->DefaultReactor();
    const engine::ExportPeer peer = LocalPeerOf(context->peer());
    if (!peer.local) {
      reactor->Finish(ToGrpc(WithInfo(absl::PermissionDeniedError("a ring is memory of this host; the call came from another one"),
                                      {.reason = "NOT_LOCAL", .field = "", .numbers = {}})));
      return reactor;
    }
    const auto ticket = engine_->OpenRing(request->scan(), peer.uid);
    if (ticket.ok()) {
      response->set_socket(ticket->path);
      response->set_ticket(ticket->nonce);
      response->set_expires_seconds(ticket->expires_seconds);
      response->set_total_bytes(static_cast<uint64_t>(ticket->total_bytes));
      response->set_slots(static_cast<uint32_t>(ticket->slots));
      response->set_block_records(static_cast<uint32_t>(ticket->block_records));
      response->set_record_bytes(static_cast<uint32_t>(ticket->record_bytes));
      response->set_total_records(static_cast<uint64_t>(ticket->total_records));
    }
    reactor->Finish(ToGrpc(ticket.status()));
    return reactor;
  }

  grpc::ServerUnaryReactor* ListCameras(grpc::CallbackServerContext* context, const v1::ListCamerasRequest*,
                                        v1::ListCamerasResponse* response) override {
    auto* reactor = context->DefaultReactor();
    workers_->Post([this, reactor, response] {
      auto cameras = engine_->ListCameras();
      if (cameras.ok()) {
        for (const auto& camera : *cameras) {
          auto* to = response->add_cameras();
          to->set_id(camera.id);
          to->set_vendor(camera.vendor);
          to->set_model(camera.model);
          to->set_serial(camera.serial);
          to->set_protocol(camera.protocol);
          to->set_address(camera.address);
          to->set_in_use(camera.in_use);
        }
      }
      reactor->Finish(ToGrpc(cameras.status()));
    });
    return reactor;
  }

 private:
  engine::Engine* const engine_;
  engine::WorkerPool* const workers_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSourceService(engine::Engine* engine, engine::WorkerPool* workers) {
  return std::make_unique<SourceServiceImpl>(engine, workers);
}

}  // namespace octavo::rpc
