#include <atomic>
#include <sys/statvfs.h>
#include <unistd.h>

#include "octavo/v1/system.grpc.pb.h"

#include "gpu/base/memory_limit.h"
#include "server/base/folder_access.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/time.h"
#include "server/rpc/convert/utf8.h"
#include "server/rpc/handler.h"
#include "server/rpc/list/page.h"
#include "server/rpc/services.h"
#include "server/security/rights.h"

namespace octavo::rpc {
namespace {

class SystemServiceImpl final : public v1::SystemService::CallbackService {
 public:
  SystemServiceImpl(engine::Engine* engine, base::WorkerPool* workers, ServerInfo info)
      : engine_(*engine), workers_(workers), info_(std::move(info)) {}

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::GetInfoRequest* request,
                                    v1::GetInfoResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      response->set_version(info_.version);
      response->set_server_id(info_.server_id);
      response->set_build(info_.build);
      for (const auto& report : info_.backends) {
        auto* backend = response->add_backends();
        backend->set_name(report.name);
        backend->set_available(report.available);
        backend->set_chosen(report.chosen);
        backend->set_reason(Utf8(report.reason));
        backend->set_devices(report.devices);
      }
      auto quarantines = engine_.Quarantines();
      const auto reads = engine_.devices().StorageRoots();
      for (const auto& root : engine_.storage_roots()) {
        AddRoot(root, v1::GetInfoResponse::StorageRoot::USE_COMMIT, reads, response);
        const auto& use = quarantines[root];
        response->mutable_storage(response->storage_size() - 1)
            ->set_quarantine_entries(use.entries);
        response->mutable_storage(response->storage_size() - 1)->set_quarantine_bytes(use.bytes);
      }
      for (const auto& root : info_.replay_roots)
        AddRoot(root, v1::GetInfoResponse::StorageRoot::USE_REPLAY, reads, response);
      *response->mutable_start_time() = WallTime(info_.started);
      response->set_draining(engine_.draining());
      const security::Principal caller = PrincipalOf(*context);
      response->mutable_caller()->set_name(caller.name);
      response->mutable_caller()->set_role(EncodeRole(caller.role));
      response->mutable_caller()->set_project(caller.project);
      response->mutable_caller()->set_found(caller.found);
      EncodeQuotas(security::OwnerOf(caller), response->mutable_caller());
      response->set_loopback_role(EncodeRole(info_.loopback_role));
      response->set_insecure_role(EncodeRole(info_.insecure_role));
      response->set_takes_tokens(info_.takes_tokens);
      if (info_.tls != nullptr) EncodeTls(response->mutable_tls());
      for (const auto& address : info_.listening()) response->add_listening(address);
      for (const auto& address : info_.open_addresses) response->add_insecure_listening(address);
      EncodeHostMemory(response->mutable_host_memory());
      if (info_.stop) EncodeStop(info_.stop(), response->mutable_stop());
      for (const auto& kind : source::SourceKinds()) {
        auto* source = response->add_sources();
        source->set_name(kind.name);
        source->set_available(kind.available);
        source->set_reason(Utf8(kind.reason));
      }
      for (const auto& line : info_.recovered) response->add_recovered(Utf8(line));
      if (info_.conditions) {
        for (const auto& line : info_.conditions(PrincipalOf(*context)))
          response->add_recovered(Utf8(line));
      }
      *response->mutable_heartbeat_interval() =
          ToDuration(engine_.clients().config().heartbeat_seconds);
      *response->mutable_session_expiry() = ToDuration(engine_.clients().config().expiry_seconds);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const ListQuery query,
                              ListQuery::Parse(*request, *v1::DeviceStatus::descriptor()));
      FillPage<v1::DeviceStatus>(
          query,
          RowsOf<v1::DeviceStatus>(
              engine_.devices().List(),
              [](const model::DeviceStatus& device) { return int64_t{device.number}; },
              EncodeDeviceStatus),
          response->mutable_devices(), response->mutable_next_page_token());
      return absl::OkStatus();
    });
  }

  grpc::ServerWriteReactor<v1::MeasureResponse>* Measure(
      grpc::CallbackServerContext* context, const v1::MeasureRequest* request) override {
    return Stream<v1::MeasureResponse>(
        context, request, [&](const std::shared_ptr<QueuedWriter<v1::MeasureResponse>>& writer) {
          auto gone = std::make_shared<std::atomic<bool>>(false);
          writer->OnOver([gone] { *gone = true; });
          workers_->Post([this, weak = std::weak_ptr(writer), gone, asked = *request] {
            if (auto to = weak.lock()) to->Feed([&] { RunMeasure(asked, weak, *gone); });
          });
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ProbeStorage(grpc::CallbackServerContext* context,
                                         const v1::ProbeStorageRequest* request,
                                         v1::ProbeStorageResponse* response) override {
    return ReplyOn(workers_, context, request, response,
                   [this, request, response, context]() -> absl::Status {
                     OCTAVO_ASSIGN_OR_RETURN(
                         const storage::RootReads found,
                         engine_.devices().ProbeStorage(request->root(), request->device(),
                                                        request->bytes(), WhileAsked(context)));
                     EncodeBackend(found, response->mutable_backend());
                     return absl::OkStatus();
                   });
  }

  grpc::ServerUnaryReactor* GetMemory(grpc::CallbackServerContext* context,
                                      const v1::GetMemoryRequest* request,
                                      v1::GetMemoryResponse* response) override {
    return Reply(context, request, response, [&]() -> absl::Status {
      EncodeMemory(engine_.devices().GetMemory(), response);
      EncodeHostMemory(response->mutable_host());
      return absl::OkStatus();
    });
  }

 private:
  static v1::Role EncodeRole(security::Role role) {
    switch (role) {
      case security::Role::kNone: return v1::ROLE_NONE;
      case security::Role::kViewer: return v1::ROLE_VIEWER;
      case security::Role::kOperator: return v1::ROLE_OPERATOR;
      case security::Role::kAdmin: return v1::ROLE_ADMIN;
    }
    return v1::ROLE_UNSPECIFIED;
  }

  void EncodeQuotas(const security::Owner& caller, v1::Caller* out) const {
    for (const memory::QuotaBook::Use& use : engine_.quotas().UseOf(caller)) {
      v1::Quota& quota = *out->add_quotas();
      static_assert(v1::Quota::Kind_MAX == static_cast<int>(memory::kQuotaKinds));
      quota.set_kind(static_cast<v1::Quota::Kind>(static_cast<int>(use.kind) + 1));
      quota.set_used(use.used);
      quota.set_allowed(use.allowed);
    }
    const auto roots = engine_.root_rights().RootsOf(caller);
    for (const std::string& root : roots.value_or(std::vector<std::string>()))
      out->add_storage_roots(Utf8(root));
  }

  void EncodeTls(v1::TlsInfo* out) const {
    using Clients = v1::TlsInfo;
    out->set_client_certificates(!info_.tls->asks_clients() ? Clients::CLIENT_CERTIFICATES_NOT_TAKEN
                                 : info_.certificate_required
                                     ? Clients::CLIENT_CERTIFICATES_REQUIRED
                                     : Clients::CLIENT_CERTIFICATES_OPTIONAL);
    out->set_certificate_role(EncodeRole(info_.certificate_role));
    *out->mutable_expire_time() = WallTime(info_.tls->Count().not_after * 1'000'000'000);
  }

  void RunMeasure(const v1::MeasureRequest& asked,
                  const std::weak_ptr<QueuedWriter<v1::MeasureResponse>>& weak,
                  const std::atomic<bool>& gone) {
    if (const absl::Status status = CheckDuration("duration", asked.duration()); !status.ok()) {
      if (auto to = weak.lock()) to->End(ToGrpc(status));
      return;
    }
    const engine::MeasureSpec spec{.device = asked.device(),
                                   .samples = asked.samples(),
                                   .records = asked.records_per_block(),
                                   .seconds = ToSeconds(asked.duration())};
    const auto devices = engine_.devices().List();
    const absl::Status status =
        engine_.devices().Measure(spec, [&](const engine::Measured& figure) -> absl::Status {
          auto to = weak.lock();
          if (gone || to == nullptr) return absl::CancelledError("the client has gone away");
          v1::MeasureResponse response;
          v1::Measurement& out = *response.mutable_measurement();
          EncodeMeasured(figure, &out);
          for (const auto& device : devices) {
            if (device.name != (asked.device().empty() ? devices[0].name : asked.device()))
              continue;
            out.set_device(device.name);
            out.set_backend(device.backend);
            out.set_model(device.model);
          }
          to->Push(std::move(response));
          return absl::OkStatus();
        });
    if (auto to = weak.lock()) to->End(ToGrpc(status));
  }

  static void EncodeHostMemory(v1::HostMemory* out) {
    const MemoryLimit memory = ReadMemoryLimit();
    out->set_total_bytes(memory.total_bytes);
    out->set_available_bytes(memory.available_bytes);
    out->set_machine_bytes(memory.machine_bytes);
    out->set_limited_by(Utf8(memory.limited_by));
  }

  static void EncodeStop(const model::StopForecast& in, v1::StopForecast* out) {
    out->set_on_held(static_cast<v1::StopForecast::OnHeld>(in.on_held));
    out->set_volumes(in.volumes);
    out->set_bytes(in.bytes);
    out->set_room_bytes(in.room_bytes);
    out->set_disk_bytes_per_s(in.bytes_per_second);
    if (in.bytes == 0 || in.bytes_per_second > 0)
      *out->mutable_expected_duration() = ToDuration(in.seconds);
    if (in.limit_seconds > 0) *out->mutable_limit() = ToDuration(in.limit_seconds);
  }

  static void EncodeBackend(const storage::RootReads& in, v1::StorageBackend* out) {
    out->set_kind(static_cast<v1::StorageBackendKind>(in.way));
    out->set_reason(Utf8(in.reason));
    out->set_cufile(Utf8(in.cufile));
    out->set_buffered_bytes_per_s(in.bytes_per_s[v1::STORAGE_BACKEND_KIND_BUFFERED]);
    out->set_direct_bytes_per_s(in.bytes_per_s[v1::STORAGE_BACKEND_KIND_DIRECT]);
    out->set_cufile_bytes_per_s(in.bytes_per_s[v1::STORAGE_BACKEND_KIND_CUFILE]);
    out->set_cufile_errors(in.cufile_errors);
    out->set_demoted(in.demoted);
    if (in.measured.has_value()) *out->mutable_probe_time() = WallTime(*in.measured);
  }

  static void AddRoot(const std::string& path, v1::GetInfoResponse::StorageRoot::Use use,
                      const std::vector<storage::RootReads>& reads, v1::GetInfoResponse* response) {
    using Root = v1::GetInfoResponse::StorageRoot;
    auto* root = response->add_storage();
    root->set_path(Utf8(path));
    root->set_use(use);
    for (const storage::RootReads& one : reads) {
      if (one.root == path) EncodeBackend(one, root->mutable_backend());
    }
    struct statvfs fs {};
    if (statvfs(path.c_str(), &fs) != 0) {
      root->set_mode(Root::MODE_MISSING);
      return;
    }
    root->set_free_bytes(static_cast<int64_t>(fs.f_bavail) * static_cast<int64_t>(fs.f_frsize));
    const base::FolderAccess access = base::AccessTo(path);
    const bool writes = access == base::FolderAccess::kReadWrite && use != Root::USE_REPLAY &&
                        (fs.f_flag & ST_RDONLY) == 0;
    root->set_mode(writes                                ? Root::MODE_READ_WRITE
                   : access != base::FolderAccess::kNone ? Root::MODE_READ_ONLY
                                                         : Root::MODE_NO_ACCESS);
  }

  engine::Engine& engine_;
  base::WorkerPool* const workers_;
  const ServerInfo info_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSystemService(engine::Engine* engine, base::WorkerPool* workers,
                                                 ServerInfo info) {
  return std::make_unique<SystemServiceImpl>(engine, workers, std::move(info));
}

}  // namespace octavo::rpc
