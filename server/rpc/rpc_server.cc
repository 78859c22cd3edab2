#include "server/rpc/rpc_server.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/unix_listener.h"

namespace octavo::rpc {
namespace {

class RpcServerImpl final : public RpcServer {
 public:
  RpcServerImpl() : workers_("oct-stream-out", 4) {
    // Kept until the process ends: the library's own shutdown, which the last user's destructor would run, joins a poller
    // thread that sleeps for up to ten seconds after a connection with a blocked write.
    static const bool kept = (LogWhatGrpcSays(), grpc_init(), true);
    (void)kept;
  }
  ~RpcServerImpl() override { Shutdown(std::chrono::milliseconds(500)); }

  absl::Status Listen(const RpcConfig& config, engine::Engine* engine, ServerInfo info) {
    info.listening = [this] { return addresses(); };
    services_.push_back(MakeScanService(engine, &camera_workers_));
    services_.push_back(MakeVolumeService(engine));
    services_.push_back(MakeJobService(engine));
    services_.push_back(MakeBufferService(engine));
    services_.push_back(MakeStreamService(engine, &workers_));
    services_.push_back(MakeSourceService(engine, &camera_workers_, &copy_workers_));
    services_.push_back(MakeSessionService(engine));
    services_.push_back(MakeSystemService(engine, &measure_workers_, std::move(info)));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    std::vector<int> ports(config.tcp.size(), 0);
    for (size_t i = 0; i < config.tcp.size(); ++i) builder.AddListeningPort(config.tcp[i], grpc::InsecureServerCredentials(), &ports[i]);
    for (const auto& service : services_) builder.RegisterService(service.get());
    builder.SetMaxReceiveMessageSize(config.max_receive_bytes);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers must not share a port silently
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, config.max_concurrent_streams);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::FailedPreconditionError("gRPC cannot listen; is an address in use?");
    for (size_t i = 0; i < config.tcp.size(); ++i) {
      if (ports[i] == 0) return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", config.tcp[i]));
      addresses_.push_back(absl::StrCat(config.tcp[i].substr(0, config.tcp[i].rfind(':')), ":", ports[i]));
    }
    if (!config.unix_path.empty()) {
      OCTAVO_ASSIGN_OR_RETURN(unix_, UnixListener::Open(config.unix_path, server_.get()));
      addresses_.push_back(absl::StrCat("unix:", config.unix_path));
    }
    SetServing(true);
    devices_ = engine->WatchDevices([this](const std::vector<engine::DeviceStatus>& devices) { SetDevices(devices); });
    return absl::OkStatus();
  }

  std::vector<std::string> addresses() const override { return addresses_; }

  void SetServing(bool serving) override {
    MutexLock lock(health_mutex_);
    serving_ = serving;
    TellHealth();
  }

  /// devices/<n> are services of their own; without a healthy one nothing is served.
  void SetDevices(const std::vector<engine::DeviceStatus>& devices) {
    MutexLock lock(health_mutex_);
    any_device_ = false;
    for (const auto& device : devices) {
      any_device_ = any_device_ || device.healthy;
      server_->GetHealthCheckService()->SetServingStatus(device.name, device.healthy);
    }
    TellHealth();
  }

  void TellHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(health_mutex_) {
    const bool serving = serving_ && any_device_;
    auto* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);  // without a name it would be that of every service, the devices included
    for (const char* service : {"octavo.v1.ScanService", "octavo.v1.VolumeService", "octavo.v1.BufferService", "octavo.v1.JobService",
                                "octavo.v1.StreamService", "octavo.v1.SourceService", "octavo.v1.SystemService", "octavo.v1.SessionService"}) {
      health->SetServingStatus(service, serving);
    }
  }

  void Shutdown(std::chrono::milliseconds grace) override {
    if (server_ == nullptr) return;
    devices_ = nullptr;  // nothing of it touches the server any more
    if (unix_ != nullptr) unix_->Stop();
    auto done = std::async(std::launch::async, [&] { server_->Shutdown(std::chrono::system_clock::now() + grace); });
    // A Unix peer that has stopped reading survives gRPC's own deadline, and where Shutdown returns all the same, the server's
    // destructor waits for it: cut what is left in any case.
    done.wait_for(grace + std::chrono::milliseconds(300));
    if (unix_ != nullptr) unix_->CutAll();
    done.wait();
    unix_ = nullptr;
    server_ = nullptr;
  }

 private:
  engine::WorkerPool workers_;
  engine::WorkerPool copy_workers_{"oct-copy", 2};
  engine::WorkerPool camera_workers_{"oct-camera", 1};  // a camera may take seconds to answer
  engine::WorkerPool measure_workers_{"oct-measure", 1};
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<UnixListener> unix_;
  std::vector<std::string> addresses_;
  Mutex health_mutex_;
  bool serving_ ABSL_GUARDED_BY(health_mutex_) = false, any_device_ ABSL_GUARDED_BY(health_mutex_) = true;
  std::unique_ptr<engine::Handle> devices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcConfig& config, engine::Engine* engine, ServerInfo info) {
  auto server = std::make_unique<RpcServerImpl>();
  OCTAVO_RETURN_IF_ERROR(server->Listen(config, engine, std::move(info)));
  return server;
}

}  // namespace octavo::rpc
