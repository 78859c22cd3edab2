#include "server/daemon.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "gpu/device.h"
#include "gpu/shareable.h"
#include "server/engine/buffer_store.h"

namespace octavo {
namespace {

// systemd's readiness protocol: one datagram to the socket it names.
void NotifySystemd(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || std::strlen(path) >= sizeof(sockaddr_un::sun_path)) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path) + 1);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  (void)::sendto(fd.get(), state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
}

// Long against any block, short against a person's patience.
constexpr std::chrono::seconds kStallPatience(30);

// Two daemons on one journal would undo each other's commits.
absl::StatusOr<UniqueFd> Lock(const std::string& state_dir) {
  std::error_code error;
  std::filesystem::create_directories(state_dir, error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("state.dir: cannot create ", state_dir, ": ", error.message()));
  const std::string path = absl::StrCat(state_dir, "/lock");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return absl::FailedPreconditionError(absl::StrCat("state.dir: cannot open ", path, ": ", std::strerror(errno)));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("state.dir: another octavod uses ", state_dir, "; give this one its own"));
  }
  return fd;
}

// Eight characters that stay with the state directory: ids of scans and volumes begin with them.
absl::StatusOr<std::string> ServerId(const std::string& state_dir) {
  const std::string path = absl::StrCat(state_dir, "/server_id");
  std::string id;
  std::ifstream(path) >> id;
  const bool fine = id.size() == 8 && id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos;
  if (fine) return id;
  std::random_device random;
  id.clear();
  for (int i = 0; i < 8; ++i) id += "abcdefghijklmnopqrstuvwxyz0123456789"[random() % 36];
  std::ofstream out(path);
  out << id << "\n";
  out.flush();
  if (!out) return absl::FailedPreconditionError(absl::StrCat("state.dir: cannot write ", path));
  return id;
}

std::string BuildText() {
  std::string text = absl::StrCat("g++ ", __VERSION__);
#if OCTAVO_WITH_CUDA
  text += ", CUDA";
#else
  text += ", no CUDA";
#endif
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  daemon->config_ = config;
  OCTAVO_ASSIGN_OR_RETURN(daemon->lock_, Lock(config.state_dir));
  OCTAVO_ASSIGN_OR_RETURN(daemon->server_id_, ServerId(config.state_dir));
  OCTAVO_ASSIGN_OR_RETURN(OpenedDevices opened, OpenDevices(config.backend, static_cast<int>(config.host_devices)));
  std::string backend;
  for (const auto& report : opened.reports) {
    if (report.chosen) backend = report.name;
    Log(LogLevel::kInfo, "backend", {{"name", report.name}, {"available", report.available}, {"chosen", report.chosen}, {"reason", report.reason}});
  }
  for (const auto& device : opened.devices) {
    Log(LogLevel::kInfo, "device", {{"index", device->info().index}, {"backend", device->info().backend}, {"model", device->info().model}});
  }
  if (!config.handoff_unix.empty()) {
    const auto mode = static_cast<uint32_t>(std::strtol(config.handoff_mode.c_str(), nullptr, 8));
    OCTAVO_ASSIGN_OR_RETURN(daemon->handoff_,
                            handoff::FdSocket::Open({.path = config.handoff_unix, .group = config.handoff_group, .mode = mode}, &daemon->clock_));
  }
  ClientMemory::MakeShareable(daemon->handoff_ != nullptr);
  OCTAVO_ASSIGN_OR_RETURN(daemon->store_, storage::CommitStore::Open(config.state_dir, config.storage_roots, &daemon->recovered_));
  std::vector<storage::SpillFolder::Found> spilled;
  {
    std::error_code error;
    const bool left = std::filesystem::exists(config.spill_dir, error);  // a tier that was turned off still has what lies there
    if (config.spill_disk_bytes > 0 || left) {
      OCTAVO_ASSIGN_OR_RETURN(daemon->spill_, storage::SpillFolder::Open(config.spill_dir, config.spill_disk_bytes, &spilled, &daemon->recovered_));
    }
    for (const auto& one : spilled) daemon->recovered_.push_back(absl::StrCat(one.file->path(), ": a spilled volume, held again"));
  }
  for (const auto& line : daemon->recovered_) Log(LogLevel::kWarning, "recovered", {{"commit", line}});
  engine::EngineConfig engine_config;
  engine_config.memory_fraction = config.memory_fraction;
  engine_config.memory_bytes = config.memory_bytes;
  engine_config.frame_pool_bytes = config.frame_pool_bytes;
  engine_config.commit_threads = static_cast<int>(config.commit_threads);
  engine_config.replay_roots = config.replay_roots;
  engine_config.camera_interfaces = config.camera_interfaces;
  engine_config.server_id = daemon->server_id_;
  engine_config.slot_cache_bytes = config.slot_cache_bytes;
  engine_config.buffer_quota_bytes = config.buffer_quota_bytes;
  engine_config.projection_bytes = config.projection_bytes;
  engine_config.spill_host_bytes = config.spill_host_bytes;
  engine_config.spill_threads = static_cast<int>(config.spill_threads);
  engine_config.spill_folder = daemon->spill_.get();
  engine_config.spilled = std::move(spilled);
  engine_config.sessions = {
      .heartbeat_seconds = config.session_heartbeat_seconds, .expiry_seconds = config.session_expiry_seconds, .most = config.session_most};
  engine_config.most_leases = config.lease_most;
  engine_config.history_entries = config.history_scans;
  engine_config.history_bytes = config.history_bytes;
  engine_config.software = absl::StrCat("octavo ", kVersion);
  engine_config.handoff = daemon->handoff_.get();
  OCTAVO_ASSIGN_OR_RETURN(daemon->engine_, engine::Engine::Create(engine_config, std::move(opened.devices), daemon->store_.get()));
  if (daemon->handoff_ != nullptr) daemon->engine_->buffers().exports().Start(daemon->handoff_.get(), config.handoff_grace_seconds);
  if (config.metrics_listen != "none") {
    OCTAVO_ASSIGN_OR_RETURN(daemon->metrics_, metrics::Exporter::Start(config.metrics_listen, daemon->engine_.get(), kVersion, backend));
  }
  rpc::RpcConfig rpc_config;
  rpc_config.tcp = config.listen_tcp;
  rpc_config.unix_path = config.listen_unix;
  rpc::ServerInfo info;
  info.version = kVersion;
  info.server_id = daemon->server_id_;
  info.build = BuildText();
  info.backends = opened.reports;
  info.recovered = daemon->recovered_;
  info.replay_roots = config.replay_roots;
  info.started = SystemClock().Now();
  OCTAVO_ASSIGN_OR_RETURN(daemon->rpc_, rpc::RpcServer::Start(rpc_config, daemon->engine_.get(), std::move(info)));
  NotifySystemd("READY=1");
  if (const auto period = Watchdog::PeriodFromEnvironment()) {
    // A look takes the locks of sessions, volumes, ledger and publisher: where one of them is stuck, no sign of life follows.
    auto look = [engine = daemon->engine_.get(), stalls = std::make_shared<StallDetector>(kStallPatience)] {
      (void)engine->Snapshot();
      return stalls->Look(engine->ListScans(), std::chrono::steady_clock::now().time_since_epoch());
    };
    daemon->watchdog_ = std::make_unique<Watchdog>(*period, std::move(look), [] { NotifySystemd("WATCHDOG=1"); });
  }
  return daemon;
}

std::string Daemon::ReadyJson() const {
  nlohmann::json ready = {{"pid", ::getpid()},
                          {"tcp", nlohmann::json::array()},
                          {"unix", config_.listen_unix},
                          {"metrics", metrics_ == nullptr ? "" : metrics_->address()}};
  for (const auto& address : rpc_->addresses()) {
    if (address.rfind("unix:", 0) != 0) ready["tcp"].push_back(address);
  }
  return ready.dump();
}

bool Daemon::Drain(const std::function<bool()>& hurry) {
  NotifySystemd("STOPPING=1");
  rpc_->SetServing(false);
  engine_->BeginDrain();
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(config_.drain_seconds);
  while (!engine_->Idle() && std::chrono::steady_clock::now() < until && !hurry()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const bool idle = engine_->Idle();
  int64_t held = 0, on_disk = 0;
  for (const auto& volume : engine_->ListVolumes({.in_memory = true})) {
    if (volume.state == engine::VolumeState::kHeld) ++(volume.tier == engine::Tier::kDisk ? on_disk : held);
  }
  if (on_disk > 0) Log(LogLevel::kInfo, "spilled volumes stay on disk and are held again by the next daemon", {{"volumes", on_disk}});
  if (held > 0) Log(LogLevel::kWarning, "held volumes are lost with the daemon", {{"volumes", held}});
  if (!idle) Log(LogLevel::kWarning, "drain time is over; ending what still runs");
  watchdog_ = nullptr;
  rpc_->Shutdown(std::chrono::milliseconds(1000));
  rpc_ = nullptr;
  metrics_ = nullptr;
  if (handoff_ != nullptr) handoff_->Stop();
  engine_ = nullptr;
  handoff_ = nullptr;
  spill_ = nullptr;
  store_ = nullptr;
  return idle;
}

}  // namespace octavo
