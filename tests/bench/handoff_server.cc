// An engine with a hand-over socket and no gRPC, told by lines of text what to do: for tests and measurements of the hand-over where
// there is no daemon (handoff_check.py). A line in, a line of JSON out:
//   scan VOLUMES BSCANS ASCANS SAMPLES   → {"volumes": [...]}
//   export NAME                          → {"nonce", "socket_path", ...}
//   discard NAME [detach]                → {}
//   commit NAME PATH                     → {}
//   memory                               → {"held", "limbo", "exports", "descriptors"}
//   free                                 → {"free"}    of the device, by the driver
// Errors: {"code", "reason", "message"}.

#include <chrono>
#include <filesystem>
#include <future>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/status.h"
#include "gpu/shareable.h"
#include "server/engine/buffer_store.h"
#include "server/engine/engine.h"
#include "server/storage/commit_store.h"

namespace octavo {
namespace {

using engine::Engine;
using nlohmann::json;

template <class T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

absl::StatusOr<json> Scan(Engine& engine, std::istream& in) {
  engine::ScanSpec spec;
  auto& source = spec.source.emplace<engine::SimulatedSource>();
  source.seed = 5;
  source.as_fast_as_possible = source.repeat_block = true;
  in >> spec.pattern.volumes >> spec.pattern.bscans_per_volume >> spec.pattern.ascans_per_bscan >> spec.acquisition.samples_per_record;
  OCTAVO_ASSIGN_OR_RETURN(engine::ScanStatus scan, engine.SubmitScan(spec, nullptr));
  while (!IsFinal(scan.state)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    OCTAVO_ASSIGN_OR_RETURN(scan, engine.GetScan(scan.name));
  }
  json volumes = json::array();
  for (const auto& volume : engine.ListVolumes()) {
    if (volume.scan == scan.name && volume.state == engine::VolumeState::kHeld) volumes.push_back({{"name", volume.name}, {"digest", volume.digest}});
  }
  return json{{"volumes", volumes}, {"reason", scan.reason}};
}

absl::StatusOr<json> Do(Engine& engine, Device& device, const std::string& line) {
  std::istringstream in(line);
  std::string what, name, word;
  in >> what;
  if (what == "scan") return Scan(engine, in);
  if (what == "memory") {
    const auto memory = engine.GetMemory();
    const auto fds = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
    return json{{"held", memory.devices[0].held_bytes},
                {"limbo", memory.devices[0].limbo_bytes},
                {"exports", engine.buffers().exports().Count().exports},
                {"descriptors", fds}};
  }
  if (what == "free") {
    OCTAVO_ASSIGN_OR_RETURN(const DeviceMemory memory, device.Memory());
    return json{{"free", memory.free_bytes}};
  }
  in >> name >> word;
  if (what == "export") {
    OCTAVO_ASSIGN_OR_RETURN(const auto ticket, engine.buffers().Export({.name = name, .replica = 0, .lease_token = {}}, {},
                                                                       {.local = true, .uid = ::getuid(), .client = "check", .accept = {}}));
    return json{{"nonce", ticket.ticket.nonce}, {"socket_path", ticket.ticket.path}, {"name", ticket.status.name}};
  }
  if (what == "revoke") {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t count, engine.buffers().exports().Revoke(name));
    return json{{"exports", count}};
  }
  if (what == "discard") {
    if (word == "detach") engine.buffers().exports().Detach(name);
    OCTAVO_RETURN_IF_ERROR(engine.DiscardVolume(name).status());
    return json::object();
  }
  if (what == "commit") {
    std::promise<absl::StatusOr<storage::CommitOutcome>> promise;
    engine::CommitCallbacks callbacks;
    callbacks.on_done = [&](absl::StatusOr<storage::CommitOutcome> outcome) { promise.set_value(std::move(outcome)); };
    engine::CommitOptions options;
    options.destination = word;
    options.writer.format = storage::Format::kNpy;
    OCTAVO_ASSIGN_OR_RETURN(const auto handle, engine.CommitVolume(name, options, "", std::move(callbacks)));
    OCTAVO_ASSIGN_OR_RETURN(const auto outcome, promise.get_future().get());
    return json{{"path", outcome.path}};
  }
  return absl::InvalidArgumentError(absl::StrCat("'", line, "' is no command"));
}

int Run(const std::string& backend, const std::string& folder, double grace_seconds) {
  OpenedDevices opened = Value(OpenDevices(backend));
  Device& device = *opened.devices[0];
  opened.devices.resize(1);
  SystemClock clock;
  ClientMemory::MakeShareable(true);
  auto socket = Value(handoff::FdSocket::Open({.path = folder + "/handoff.sock", .group = ""}, &clock));
  std::vector<std::string> report;
  auto store = Value(storage::CommitStore::Open(folder + "/state", {folder + "/data"}, &report));
  engine::EngineConfig config;
  config.memory_bytes = backend == "host" ? int64_t{512} << 20 : int64_t{24} << 30;
  config.slot_cache_bytes = int64_t{8} << 30;
  config.server_id = "handtest";
  config.software = "octavo test";
  auto engine = Value(Engine::Create(config, std::move(opened.devices), store.get()));
  engine->buffers().exports().Start(socket.get(), grace_seconds);
  std::cout << json{{"ready", device.info().backend}, {"model", device.info().model}, {"pid", ::getpid()}}.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const auto answer = Do(*engine, device, line);
    if (answer.ok()) {
      std::cout << answer->dump() << std::endl;
    } else {
      const absl::Status& status = answer.status();
      std::cout << json{{"code", absl::StatusCodeToString(status.code())},
                        {"reason", InfoOf(status).reason},
                        {"message", std::string(status.message())}}
                       .dump()
                << std::endl;
    }
  }
  socket->Stop();
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "handoff_server host|cuda FOLDER [GRACE_SECONDS]\n";
    return 2;
  }
  return octavo::Run(argv[1], argv[2], argc > 3 ? std::atof(argv[3]) : 1.0);
}
