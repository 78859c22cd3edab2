// The parts of the server that hand memory over, without scans, daemon and gRPC. Lines of text
// control them. handoff_check.py uses this program to test and measure the hand-over. Volumes
// arrive in the slots of a pool, as those of a running scan do. Each input line is answered by one
// line of JSON:
//   pool SLOTS Y X Z                     → {}          volumes are U8 [Y, X, Z]
//   scan VOLUMES [PAUSE_MS]              → {"volumes": [{"name", "digest", "sealed_ns"}, ...]}
//       random bytes; a pause before each is complete
//   feed                                 → {"nonce", "socket_path"}    announces volumes as they
//       complete
//   end                                  → {}          the scan has ended
//   export NAME                          → {"nonce", "socket_path", "name"}
//   revoke NAME                          → {"exports"}
//   discard NAME [detach]                → {}
//   commit NAME PATH                     → {"path"}
//   memory                               → {"held", "detached", "exports", "descriptors", "slots"}
// Errors: {"code", "reason", "message"}.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "gpu/backend/open_devices.h"
#include "gpu/base/status.h"
#include "gpu/device/exportable_memory.h"
#include "server/base/resource_names.h"
#include "server/exports/export_feed.h"
#include "server/exports/export_store.h"
#include "server/storage/commit/commit_store.h"
#include "server/volume/committer.h"
#include "server/volume/volume_store.h"
#include "tests/support/rooms.h"

namespace octavo::engine {
namespace {

using nlohmann::json;

template <class T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

class Server final : public ScanLookup {
 public:
  Server(std::unique_ptr<Device> device, const std::string& folder, double grace_seconds)
      : device_(std::move(device)),
        stream_(Value(device_->NewStream(StreamPriority::kNormal))),
        word_(Value(device_->AllocatePinned(8))),
        storage_(
            Value(storage::CommitStore::Open(folder + "/state", {folder + "/data"}, &report_))),
        frames_(std::make_shared<FramePool>(device_.get(), 256 << 20)),
        committer_({.storage = storage_.get(),
                    .volumes = &volumes_,
                    .clock = &clock_,
                    .devices = DeviceSet({{device_.get(), frames_}}),
                    .meta_of =
                        [](const VolumeStatus& v) {
                          storage::VolumeMeta meta;
                          meta.volume_name = v.name;
                          std::copy(v.shape, v.shape + 3, meta.shape);
                          meta.dtype = v.dtype;
                          meta.digest = v.digest;
                          meta.value_kind = "db";
                          return meta;
                        }},
                   1),
        exports_({.devices = {device_.get()},
                  .ledger = &ledger_,
                  .volumes = &volumes_,
                  .clock = &clock_,
                  .server_id = "handtest"}),
        feeds_({.exports = &exports_, .volumes = &volumes_, .scans = this, .clock = &clock_}),
        socket_(Value(
            handoff::FdSocket::Open({.path = folder + "/handoff.sock", .group = ""}, &clock_))) {
    volumes_.SetProtections({.mappings = &exports_});
    volumes_.AddObserver(&feeds_);
    exports_.Start(socket_.get(), grace_seconds);
  }
  ~Server() override {
    socket_->Stop();
    if (pool_ != nullptr) pool_->Close();
  }

  absl::StatusOr<bool> HasEnded(const std::string&) override { return ended_.load(); }
  int64_t SpareSlots(const VolumeStatus&) override { return int64_t{1} << 20; }

  absl::StatusOr<json> Do(const std::string& line) {
    std::istringstream in(line);
    std::string what, name, word;
    in >> what;
    if (what == "pool") return MakePool(in);
    if (what == "scan") return Scan(in);
    if (what == "feed") {
      OCTAVO_ASSIGN_OR_RETURN(
          const auto ticket,
          feeds_.Issue("scans/check",
                       {.local = true, .uid = ::getuid(), .client = "check", .accept = {}}));
      return json{{"nonce", ticket.nonce}, {"socket_path", ticket.path}};
    }
    if (what == "end") {
      ended_ = true;
      feeds_.Tick();
      ended_ = false;
      return json::object();
    }
    if (what == "memory") {
      const auto use = ledger_.UseOf(0);
      const auto fds = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                     std::filesystem::directory_iterator());
      return json{{"held", use.held},
                  {"detached", use.detached},
                  {"exports", exports_.Count().exports},
                  {"descriptors", fds},
                  {"slots", pool_->Free()}};
    }
    in >> name >> word;
    if (what == "export") {
      const ExportPeer peer{.local = true, .uid = ::getuid(), .client = "check", .accept = {}};
      OCTAVO_RETURN_IF_ERROR(exports_.Admit(peer));
      OCTAVO_ASSIGN_OR_RETURN(ExportedMemory memory, exports_.OfVolume(name, 0));
      OCTAVO_ASSIGN_OR_RETURN(const ExportTicket ticket, exports_.Issue(std::move(memory), peer));
      return json{{"nonce", ticket.ticket.nonce},
                  {"socket_path", ticket.ticket.path},
                  {"name", ticket.status.name}};
    }
    if (what == "revoke") {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t count, exports_.Revoke(name));
      return json{{"exports", count}};
    }
    if (what == "discard") {
      const ClientVerb asked{.detach_exports = word == "detach"};
      OCTAVO_RETURN_IF_ERROR(
          volumes_.Discard(name, Reason::kDiscarded, "discarded", &asked).status());
      return json::object();
    }
    if (what == "commit") return Commit(name, word);
    return absl::InvalidArgumentError(absl::StrCat("'", line, "' is no command"));
  }

 private:
  absl::StatusOr<json> MakePool(std::istream& in) {
    int64_t slots = 0;
    in >> slots >> shape_[0] >> shape_[1] >> shape_[2];
    bytes_ = shape_[0] * shape_[1] * shape_[2];
    if (pool_ != nullptr) pool_->Close();
    pool_ = std::make_shared<SlotPool>(&ledger_);
    OCTAVO_ASSIGN_OR_RETURN(const auto charges,
                            ledger_.Reserve(0, "scans/check", "",
                                            {{.kind = model::NeedKind::kVolumeSlots,
                                              .bytes = slots * (ClientMemory::Bytes(bytes_) + 256),
                                              .count = slots}},
                                            nullptr));
    for (int64_t i = 0; i < slots; ++i) {
      auto slot = std::make_unique<VolumeSlot>();
      slot->charge = charges[static_cast<size_t>(i)];
      OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(*device_, bytes_));
      OCTAVO_ASSIGN_OR_RETURN(slot->digest, device_->Allocate(256));
      pool_->Add(std::move(slot));
    }
    return json::object();
  }

  absl::StatusOr<json> Scan(std::istream& in) {
    int64_t count = 0, pause_ms = 0;
    in >> count >> pause_ms;
    json volumes = json::array();
    std::mt19937_64 random(++seed_);
    std::vector<uint64_t> piece(static_cast<size_t>(std::min<int64_t>(bytes_, 1 << 20) / 8));
    for (int64_t i = 0; i < count; ++i) {
      std::shared_ptr<VolumeSlot> slot = pool_->TryTake();
      if (slot == nullptr) return absl::ResourceExhaustedError("no slot is free");
      VolumeStatus volume;
      volume.name = absl::StrCat("volumes/", NewId("handtest"));
      volume.scan = "scans/check";
      volume.index = index_++;
      std::copy(shape_, shape_ + 3, volume.shape);
      volume.bytes = bytes_;
      volumes_.Add(volume, slot, 0);
      for (auto& word : piece) word = random();
      for (int64_t at = 0; at < bytes_; at += 1 << 20) {
        piece[0] = static_cast<uint64_t>(at);
        const int64_t part = std::min<int64_t>(bytes_ - at, 1 << 20);
        OCTAVO_RETURN_IF_ERROR(device_->CopyToDevice(stream_.ref(), slot->volume.as<uint8_t>() + at,
                                                     piece.data(), part));
        OCTAVO_RETURN_IF_ERROR(stream_.ref().Synchronize());
      }
      OCTAVO_RETURN_IF_ERROR(device_->Digest(stream_.ref(),
                                             slot->volume.span<const uint8_t>().First(bytes_),
                                             slot->digest.span<uint64_t>()));
      OCTAVO_RETURN_IF_ERROR(
          device_->CopyToHost(stream_.ref(), word_.data(), slot->digest.data(), 8));
      OCTAVO_RETURN_IF_ERROR(stream_.ref().Synchronize());
      volume.digest = absl::StrFormat("sum64:%016x", *word_.as<uint64_t>());
      if (pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      volumes_.Seal(volume, /*kept=*/true);
      OCTAVO_ASSIGN_OR_RETURN(const VolumeStatus sealed, volumes_.Get(volume.name));
      volumes.push_back({{"name", volume.name},
                         {"digest", volume.digest},
                         {"sealed_ns", clock_.Now().monotonic_ns -
                                           static_cast<int64_t>(sealed.held_seconds * 1e9)}});
    }
    return json{{"volumes", volumes}};
  }

  absl::StatusOr<json> Commit(const std::string& name, const std::string& path) {
    std::promise<absl::StatusOr<storage::CommitOutcome>> promise;
    const auto done = [&](absl::StatusOr<storage::CommitOutcome> outcome) {
      promise.set_value(std::move(outcome));
    };
    CommitOptions options;
    options.destination = path;
    options.writer.format = storage::Format::kNpy;
    OCTAVO_RETURN_IF_ERROR(committer_.Commit(name, options, {}, done));
    OCTAVO_ASSIGN_OR_RETURN(const auto outcome, promise.get_future().get());
    return json{{"path", outcome.path}};
  }

  const SystemClock clock_;
  const std::unique_ptr<Device> device_;
  const Stream stream_;
  const PinnedBuffer word_;
  std::vector<std::string> report_;
  const std::unique_ptr<storage::CommitStore> storage_;
  const std::shared_ptr<FramePool> frames_;
  Ledger ledger_{{int64_t{24} << 30}};
  VolumeStore volumes_{&ledger_, &clock_};
  Committer committer_;
  ExportStore exports_;
  ExportFeeds feeds_;
  std::atomic<bool> ended_{false};
  const std::unique_ptr<handoff::FdSocket> socket_;
  std::shared_ptr<SlotPool> pool_;
  int64_t shape_[3] = {0, 0, 0}, bytes_ = 0;
  uint64_t seed_ = 0;
  int64_t index_ = 0;
};

int Run(const std::string& backend, const std::string& folder, double grace_seconds) {
  OpenedDevices opened = Value(OpenDevices(backend));
  ClientMemory::MakeExportable(true);
  const json ready = {{"ready", opened.devices[0]->info().backend},
                      {"model", opened.devices[0]->info().model},
                      {"pid", ::getpid()}};
  Server server(std::move(opened.devices[0]), folder, grace_seconds);
  std::cout << ready.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    const auto answer = server.Do(line);
    if (answer.ok()) {
      std::cout << answer->dump() << std::endl;
    } else {
      const absl::Status& status = answer.status();
      std::cout << json{{"code", absl::StatusCodeToString(status.code())},
                        {"reason", Name(InfoOf(status).reason)},
                        {"message", std::string(status.message())}}
                       .dump()
                << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace octavo::engine

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "handoff_server host|cuda FOLDER [GRACE_SECONDS]\n";
    return 2;
  }
  return octavo::engine::Run(argv[1], argv[2], argc > 3 ? std::atof(argv[3]) : 1.0);
}
