#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_posix.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/device_names.h"
#include "server/rpc/convert/bounds.h"
#include "server/rpc/transport/call_gate.h"
#include "server/rpc/transport/gated_service.h"
#include "server/rpc/transport/grpc_log.h"
#include "server/rpc/transport/listener.h"
#include "server/rpc/transport/open_watches.h"
#include "server/rpc/transport/stall_watch.h"
#include "server/rpc/transport/tls_credentials.h"
#include "server/rpc/transport/tls_watch.h"

namespace octavo::rpc {
namespace {

constexpr int kReflectionThreads = 16;

class RpcServerImpl final : public RpcServer {
 public:
  RpcServerImpl() : workers_("oct-stream-out", 4, /*niceness=*/5) {
    // Kept until the process ends: the library's own shutdown, which the last user's destructor
    // would run, joins a poller thread that sleeps for up to ten seconds after a connection with a
    // blocked write.
    static const bool kept = (LogWhatGrpcSays(), grpc_init(), true);
    (void)kept;
  }
  ~RpcServerImpl() override { Shutdown(std::chrono::milliseconds(500)); }

  absl::Status Listen(const RpcConfig& config, engine::Engine* engine, ServerInfo info) {
    info.listening = [this] { return addresses(); };
    info.loopback_role = config.trust.loopback_role;
    if (config.trust.tls == nullptr && config.trust.tokens == nullptr)
      info.insecure_role = config.trust.insecure_role;
    info.takes_tokens = config.trust.tokens != nullptr;
    info.tls = config.trust.tls;
    info.certificate_required = config.trust.certificate_required;
    info.certificate_role = config.trust.certificate_role;
    gate_ = std::make_unique<CallGate>(config.trust, &engine->quotas(), config.audit,
                                       &engine->grants().book());
    listener_ = std::make_unique<Listener>(config.spare_descriptors, config.stalled_seconds);
    for (const auto& address : config.tcp) OCTAVO_RETURN_IF_ERROR(listener_->AddTcp(address));
    if (!config.unix_path.empty()) OCTAVO_RETURN_IF_ERROR(listener_->AddUnix(config.unix_path));
    Add("ScanService", MakeScanService(engine, &slow_));
    Add("VolumeService",
        MakeVolumeService(engine, &workers_, &slow_, &watches_, config.picture_bytes));
    Add("JobService", MakeJobService(engine, &slow_));
    Add("OperationService", MakeOperationService(engine));
    Add("BufferService", MakeBufferService(engine, &buffer_workers_, &watches_));
    Add("ExportService", MakeExportService(engine, &buffer_workers_));
    Add("MosaicService", MakeMosaicService(engine, &slow_.mosaics));
    Add("StreamService", MakeStreamService(engine, &workers_, &slow_));
    Add("IngestService", MakeIngestService(engine, &slow_, &copy_workers_));
    Add("SessionService", MakeSessionService(engine));
    Add("AccessService", MakeAccessService(engine, &slow_));
    Add("SystemService", MakeSystemService(engine, &measure_workers_, std::move(info)));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    auto tcp = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        config.trust.tls == nullptr
            ? grpc::InsecureServerCredentials()
            : MakeTlsCredentials(config.trust.tls, config.trust.certificate_required));
    for (const auto& [name, service] : services_) builder.RegisterService(service.get());
    builder.SetMaxReceiveMessageSize(kMostMessageBytes);
    builder.SetMaxSendMessageSize(-1);
    builder.SetContextAllocator(gate_->MakeContexts());
    // A compressed message would grow before anybody asks who sends it, and is in no budget: a
    // thousandth of its size may be on the wire. No client of Octavo compresses.
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
      builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
    // Memory for received data that no call has read yet: half of a message stays here until the
    // other half arrives. When it is used up, gRPC ends calls, first those that hold memory.
    grpc::ResourceQuota quota("octavo");
    quota.Resize(static_cast<size_t>(config.memory_bytes));
    // gRPC's reflection is its only service with a thread for each stream, which anybody may open:
    // further ones are refused.
    quota.SetMaxThreads(kReflectionThreads);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               20'000);  // for the first bytes of a connection, ms
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, config.max_concurrent_streams);
    // A client that stands still, in a debugger or on a machine that sleeps, answers no ping: it
    // has as long as one that reads nothing.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(
        GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
        std::max(10'000, static_cast<int>(config.stalled_seconds * 1000) - 20'000));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC does not start");
    if (config.trust.tls != nullptr) WatchTls(config.trust);
    listener_->Start([server = server_.get(),
                      tcp = std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>(
                          std::move(tcp))](UniqueFd connection, bool is_unix) {
      if (is_unix) {
        // gRPC names the peer after this descriptor, by which the server finds its user
        // (unix_peer.h).
        grpc::AddInsecureChannelFromFd(server, connection.release());
        return;
      }
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
      parameters.fd = connection.release();
      tcp->HandleNewConnection(&parameters);
    });
    stalls_ = std::make_unique<StallWatch>(
        std::chrono::duration<double>(config.stalled_seconds),
        [engine](const std::string& reason) { engine->streams().CountCut(reason); },
        [this](const std::string& peer) { listener_->Cut(peer); });
    SetServing(true);
    devices_ = engine->devices().Watch(
        [this](const std::vector<model::DeviceStatus>& devices) { SetDevices(devices); });
    return absl::OkStatus();
  }

  /// A service of the contract, behind the gate.
  void Add(const char* name, std::unique_ptr<grpc::Service> service) {
    const std::string full_name = absl::StrCat("octavo.v1.", name);
    const auto* const descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(full_name);
    services_.emplace_back(full_name,
                           std::make_unique<GatedService>(std::move(service), descriptor));
  }

  void WatchTls(const TrustConfig& trust) {
    TellTlsFailures([failures = trust.tls_failures](absl::string_view error) {
      failures->Note(security::TlsFailureOf(error));
    });
    listener_->TellShortLived(
        [failures = trust.tls_failures](const std::string& peer) { failures->NoteLeft(peer); });
    tls_ = std::make_unique<TlsWatch>(
        TlsWatch::Config{.store = trust.tls,
                         .failures = trust.tls_failures,
                         .old_seconds = trust.old_connections_seconds},
        [this](int64_t generation) { listener_->SetGeneration(generation); },
        [this](int64_t generation) { return listener_->CutTcpBefore(generation); });
  }

  std::vector<std::string> addresses() const override { return listener_->addresses(); }

  void SetServing(bool serving) override {
    MutexLock lock(health_mutex_);
    serving_ = serving;
    TellHealth();
  }

  /// Each device is a health service of its own; without a healthy one that scans can use, no
  /// service is serving.
  void SetDevices(const std::vector<model::DeviceStatus>& devices) {
    MutexLock lock(health_mutex_);
    any_device_ = false;
    for (const auto& device : devices) {
      any_device_ = any_device_ || (device.healthy && device.name != base::kHostDeviceName);
      server_->GetHealthCheckService()->SetServingStatus(device.name, device.healthy);
    }
    TellHealth();
  }

  void TellHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_mutex_) {
    const bool serving = serving_ && any_device_;
    auto* health = server_->GetHealthCheckService();
    health->SetServingStatus(
        "", serving);  // an empty name would stand for every service, devices included
    for (const auto& [name, service] : services_) health->SetServingStatus(name, serving);
  }

  void Shutdown(std::chrono::milliseconds grace) override {
    if (server_ == nullptr) return;
    devices_ = nullptr;  // no part of the server uses it any more
    listener_->Stop();
    if (tls_ != nullptr) TellTlsFailures(nullptr);
    tls_ = nullptr;
    watches_.EndAll();
    auto done = std::async(std::launch::async,
                           [&] { server_->Shutdown(std::chrono::system_clock::now() + grace); });
    // A peer that has stopped reading survives gRPC's own deadline, and even if Shutdown returns,
    // the server's destructor waits for the peer: cut the remaining connections in any case.
    done.wait_for(grace + std::chrono::milliseconds(300));
    listener_->CutAll();
    done.wait();
    server_ = nullptr;
    stalls_ = nullptr;
  }

 private:
  // Outlives the threads that end calls, and the server, whose calls' contexts use it.
  std::unique_ptr<CallGate> gate_;
  OpenWatches watches_;
  base::WorkerPool workers_;
  base::WorkerPool copy_workers_{"oct-rpc-read", 2};
  base::WorkerPool buffer_workers_{"oct-rpc-buffer", 4};
  SlowWork slow_;
  // One measures; the other refuses whoever asks meanwhile.
  base::WorkerPool measure_workers_{"oct-measure", 2};
  std::vector<std::pair<std::string, std::unique_ptr<grpc::Service>>> services_;  // by full name
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<StallWatch> stalls_;
  std::unique_ptr<TlsWatch> tls_;  // null = no TLS
  Mutex health_mutex_;
  bool serving_ ABSL_GUARDED_BY(health_mutex_) = false, any_device_
                                                        ABSL_GUARDED_BY(health_mutex_) = true;
  std::unique_ptr<base::Handle> devices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcConfig& config,
                                                            engine::Engine* engine,
                                                            ServerInfo info) {
  auto server = std::make_unique<RpcServerImpl>();
  OCTAVO_RETURN_IF_ERROR(server->Listen(config, engine, std::move(info)));
  return server;
}

}  // namespace octavo::rpc
