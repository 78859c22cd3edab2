#include "server/engine/devices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/device_names.h"
#include "server/base/resource_names.h"
#include "server/engine/internal.h"
#include "server/memory/device_placement.h"
#include "server/storage/direct/probe_file.h"

namespace octavo::engine {
namespace {

int64_t BytesOf(const std::vector<model::AdmissionReport::Item>& needs) {
  int64_t bytes = 0;
  for (const auto& need : needs) bytes += need.bytes;
  return bytes;
}

}  // namespace

std::vector<model::DeviceStatus> Devices::List() {
  std::vector<model::DeviceStatus> list;
  const auto sessions = components_.scans.All();
  std::map<int, int64_t> lent = components_.buffers.LentBytes();
  for (size_t d = 0; d < components_.owned_devices.size(); ++d) {
    const DeviceInfo& info = components_.owned_devices[d]->info();
    const memory::Ledger::Use use = components_.ledger.UseOf(static_cast<int>(d));
    const absl::Status health = components_.owned_devices[d]->Health();
    model::DeviceStatus status;
    status.number = static_cast<int>(d);
    status.name = components_.devices.names().Name(status.number);
    status.backend = info.backend;
    status.model = info.model;
    status.uuid = info.uuid;
    status.healthy = health.ok();
    status.reason = std::string(health.message());
    status.total_bytes = info.total_bytes;
    status.budget_bytes = use.budget;
    status.reserved_bytes = use.reserved;
    status.held_bytes = use.held;
    status.buffer_bytes = use.buffers;
    status.used_bytes = use.reserved + use.held + use.buffers;
    status.cached_bytes = use.cached;
    status.detached_bytes = use.detached;
    status.free_bytes = use.free();
    status.peak_bytes = use.peak;
    status.imported_bytes = lent[status.number];
    for (const auto& session : sessions) {
      const model::ScanState state = session->state();
      const bool runs = state == model::ScanState::kRunning || state == model::ScanState::kDraining;
      status.running_scans += runs && session->Uses(static_cast<int>(d));
    }
    status.running_jobs = components_.jobs.RunningOn(static_cast<int>(d));
    list.push_back(std::move(status));
  }
  return list;
}

std::unique_ptr<base::Handle> Devices::Watch(
    std::function<void(const std::vector<model::DeviceStatus>&)> callback) {
  return watch_.Add(std::move(callback), List());
}

absl::StatusOr<size_t> Devices::Find(const std::string& device, bool host_too) const {
  if (device.empty()) return size_t{0};
  const base::DeviceNames& names = components_.devices.names();
  const std::string allowed =
      absl::StrCat("; allowed are ", host_too ? names.All() : names.Numbered());
  const std::optional<int> found = names.Find(device);
  if (!found.has_value()) {
    return InvalidField(
        "device",
        absl::StrCat("is '", device, "'",
                     device == base::kHostDeviceName ? base::kNoHostForJobs : "", allowed));
  }
  if (names.IsForJobs(*found) && !host_too)
    return InvalidField("device",
                        absl::StrCat("is ", device, ", into which no files are imported", allowed));
  return static_cast<size_t>(*found);
}

absl::StatusOr<storage::RootReads> Devices::ProbeStorage(const std::string& root,
                                                         const std::string& device, int64_t bytes,
                                                         const MayGoOn& may_go_on) {
  constexpr int64_t kDefault = 256 << 20, kLeast = storage::ProbeFile::kLeastBytes,
                    kMost = int64_t{16} << 30, kMostMemory = 256 << 20;
  OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
  if (bytes == 0) bytes = kDefault;
  OCTAVO_RETURN_IF_ERROR(InRange("bytes", bytes, kLeast, kMost));
  OCTAVO_ASSIGN_OR_RETURN(const size_t d, Find(device, /*host_too=*/false));
  Device& on = *components_.owned_devices[d];
  OCTAVO_RETURN_IF_ERROR(on.Health());
  // Before the memory: a second caller is refused without taking any.
  OCTAVO_ASSIGN_OR_RETURN(const storage::StorageReads::Turn turn, components_.reads.Begin(root));
  const int64_t window = std::min(bytes, kMostMemory);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t beside, storage::StorageReads::DeviceBytes(on, window));
  OCTAVO_ASSIGN_OR_RETURN(
      const auto charges,
      components_.ledger.Reserve(
          static_cast<int>(d), "storage probe", "",
          {{.kind = model::NeedKind::kMeasurement, .bytes = window + beside, .count = 1}},
          nullptr));
  const absl::Cleanup refund = [&] {
    for (const auto id : charges) components_.ledger.Release(id);
  };
  OCTAVO_ASSIGN_OR_RETURN(const DeviceBuffer buffer, on.Allocate(window));
  OCTAVO_ASSIGN_OR_RETURN(const Stream stream, on.NewStream(StreamPriority::kLow));
  const memory::PartOfPool frames(components_.devices.frames(static_cast<int>(d)),
                                  memory::FramePool::Use::kClient);
  return components_.reads.Measure(turn, bytes,
                                   {.device = &on,
                                    .lend = [&](int64_t wanted) { return frames.Lend(wanted); },
                                    .stream = stream.ref(),
                                    .memory = buffer.span<uint8_t>(),
                                    .go_on = [&]() -> absl::Status {
                                      OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
                                      return may_go_on();
                                    }});
}

std::vector<storage::RootReads> Devices::StorageRoots() const { return components_.reads.List(); }

absl::Status Devices::Measure(MeasureSpec spec, const TellMeasured& tell) {
  if (spec.device.empty()) spec.device = base::DeviceName(0);
  OCTAVO_ASSIGN_OR_RETURN(const size_t d, Find(spec.device, /*host_too=*/true));
  Device& device = *components_.owned_devices[d];
  OCTAVO_RETURN_IF_ERROR(device.Health());
  OCTAVO_RETURN_IF_ERROR(ResolveMeasure(&spec, device));
  if (measuring_.exchange(true)) {
    return WithInfo(
        absl::FailedPreconditionError("another measurement runs; ask again when it is over"),
        {.reason = Reason::kMeasuring, .field = "", .numbers = {}});
  }
  const absl::Cleanup measured = [this] { measuring_ = false; };
  const int64_t scans = components_.scans.admitted();
  for (const auto& session : components_.scans.All()) {
    if (session->finished() || IsFinal(session->state())) continue;
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(session->name(), " runs; a measurement needs the device for itself")),
        {.reason = Reason::kScansRunning, .field = "", .numbers = {{"scan", session->name()}}});
  }
  OCTAVO_ASSIGN_OR_RETURN(const auto charges,
                          components_.ledger.Reserve(static_cast<int>(d), "measurement", "",
                                                     {{.kind = model::NeedKind::kMeasurement,
                                                       .bytes = MeasureBytes(spec, device),
                                                       .count = 1}},
                                                     nullptr));
  const absl::Cleanup refund = [&] {
    for (const auto id : charges) components_.ledger.Release(id);
  };
  const auto may_go_on = [&]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
    if (components_.scans.admitted() == scans) return absl::OkStatus();
    return WithInfo(absl::AbortedError("a scan was submitted while the device was measured"),
                    {.reason = Reason::kMeasurementDisturbed, .field = "", .numbers = {}});
  };
  return MeasureDevice(device, spec, may_go_on, [&](const Measured& figure) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(may_go_on());
    return tell(figure);
  });
}

model::MemoryStatus Devices::GetMemory() {
  model::MemoryStatus memory;
  memory.devices = List();
  std::map<std::string, std::string> session_of;
  for (const auto& session : components_.scans.All()) {
    if (!session->finished() && !session->client_session().empty())
      session_of[session->name()] = session->client_session();
  }
  for (const auto& volume : components_.volumes.List({.in_memory = true}))
    session_of[volume.name] = volume.session;
  for (int d = 0; d < components_.ledger.devices(); ++d) {
    for (const auto& holder : components_.ledger.HoldersOf(d)) {
      const auto it = session_of.find(holder.name);
      memory.holders.push_back({.holder = holder,
                                .device = components_.devices.names().Name(d),
                                .session = it == session_of.end() ? "" : it->second});
    }
  }
  memory.tiers = components_.spiller.Uses();
  return memory;
}

absl::StatusOr<std::vector<int>> Devices::ChooseFor(model::ResolvedScan* scan) {
  std::vector<memory::DeviceLoad> loads;
  const auto sessions = components_.scans.All();
  const auto numbered = static_cast<size_t>(components_.devices.names().numbered());
  for (size_t d = 0; d < numbered; ++d) {  // no scan uses devices/host
    memory::DeviceLoad load{.health = components_.owned_devices[d]->Health(),
                            .free_bytes = components_.ledger.UseOf(static_cast<int>(d)).free()};
    for (const auto& session : sessions) {
      if (session->finished() || !session->Uses(static_cast<int>(d))) continue;
      ++(session->state() == model::ScanState::kQueued ? load.waiting : load.running);
    }
    loads.push_back(std::move(load));
  }
  const auto healthy = std::count_if(
      loads.begin(), loads.end(), [](const memory::DeviceLoad& load) { return load.health.ok(); });
  if (const model::Spread& spread = scan->spec.spread; spread.striped) {
    const int64_t named = spread.devices.empty() ? spread.count : std::ssize(spread.devices);
    scan->stripe_devices = named > 0 ? named : healthy;
  }
  memory::DeviceWish wish{.device = scan->spec.device,
                          .spread = scan->spec.spread,
                          .host_for_jobs = numbered < components_.owned_devices.size()};
  for (size_t d = 0; d < numbered; ++d) {  // their needs are equal
    Device& device = *components_.owned_devices[d];
    if (!device.Health().ok()) continue;
    wish.home_bytes = BytesOf(scan::Needs(*scan, device));
    wish.peer_bytes = BytesOf(scan::PeerNeeds(*scan, device));
    break;
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<int> chosen, memory::ChooseDevices(wish, loads));
  if (scan->stripe_devices > 0) scan->stripe_devices = std::ssize(chosen);
  return chosen;
}

void Devices::PollHealth() {
  for (size_t d = 0; d < components_.owned_devices.size(); ++d) {
    const absl::Status health = components_.owned_devices[d]->Health();
    if (health.ok() || !watch_.Lost(static_cast<int>(d))) continue;
    Log(LogLevel::kError, "device lost",
        {{"device", components_.devices.names().Name(static_cast<int>(d))},
         {"reason", std::string(health.message())}});
    watch_.Tell(List());
    for (const auto& session : components_.scans.All()) {
      if (session->Uses(static_cast<int>(d))) session->DeviceLost();
    }
  }
}

}  // namespace octavo::engine
