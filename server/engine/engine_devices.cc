#include <algorithm>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/engine/engine_impl.h"
#include "server/memory/device_placement.h"

namespace octavo::engine {
namespace {

int64_t BytesOf(const std::vector<model::AdmissionReport::Item>& needs) {
  int64_t bytes = 0;
  for (const auto& need : needs) bytes += need.bytes;
  return bytes;
}

}  // namespace

std::vector<model::DeviceStatus> EngineImpl::ListDevices() {
  std::vector<model::DeviceStatus> list;
  const auto sessions = Sessions();
  for (size_t d = 0; d < devices_.size(); ++d) {
    const DeviceInfo& info = devices_[d]->info();
    const memory::Ledger::Use use = ledger_.UseOf(static_cast<int>(d));
    const absl::Status health = devices_[d]->Health();
    model::DeviceStatus status;
    status.name = base::DeviceName(static_cast<int>(d));
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
    for (const auto& session : sessions)
      status.running_scans += session->Uses(static_cast<int>(d)) && !IsFinal(session->state());
    status.running_jobs = jobs_.RunningOn(static_cast<int>(d));
    list.push_back(std::move(status));
  }
  return list;
}

std::unique_ptr<base::Handle> EngineImpl::WatchDevices(
    std::function<void(const std::vector<model::DeviceStatus>&)> callback) {
  return device_watch_.Add(std::move(callback), ListDevices());
}

absl::Status EngineImpl::Measure(MeasureSpec spec, const TellMeasured& tell) {
  if (spec.device.empty()) spec.device = base::DeviceName(0);
  size_t d = 0;
  while (d < devices_.size() && base::DeviceName(static_cast<int>(d)) != spec.device) ++d;
  if (d == devices_.size()) {
    return InvalidField("device",
                        absl::StrCat("is '", spec.device, "'; allowed are devices/0 to devices/",
                                     devices_.size() - 1));
  }
  Device& device = *devices_[d];
  OCTAVO_RETURN_IF_ERROR(device.Health());
  OCTAVO_RETURN_IF_ERROR(ResolveMeasure(&spec, device));
  if (measuring_.exchange(true)) {
    return WithInfo(absl::FailedPreconditionError("another measurement runs"),
                    {.reason = "MEASURING", .field = "", .numbers = {}});
  }
  const absl::Cleanup measured = [this] { measuring_ = false; };
  const int64_t scans = scans_admitted_;
  for (const auto& session : Sessions()) {
    if (session->finished() || IsFinal(session->state())) continue;
    return WithInfo(
        absl::FailedPreconditionError(
            absl::StrCat(session->name(), " runs; a measurement needs the device for itself")),
        {.reason = "SCANS_RUNNING", .field = "", .numbers = {{"scan", session->name()}}});
  }
  OCTAVO_ASSIGN_OR_RETURN(
      const auto charges,
      ledger_.Reserve(static_cast<int>(d), "measurement", "",
                      {{.what = "measurement", .bytes = MeasureBytes(spec, device), .count = 1}},
                      nullptr));
  const absl::Cleanup refund = [&] {
    for (const auto id : charges) ledger_.Release(id);
  };
  const auto may_go_on = [&]() -> absl::Status {
    if (draining_) return Draining();
    if (scans_admitted_ == scans) return absl::OkStatus();
    return WithInfo(absl::AbortedError("a scan was submitted while the device was measured"),
                    {.reason = "MEASUREMENT_DISTURBED", .field = "", .numbers = {}});
  };
  return MeasureDevice(device, spec, may_go_on, [&](const Measured& figure) -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(may_go_on());
    return tell(figure);
  });
}

model::MemoryStatus EngineImpl::GetMemory() {
  model::MemoryStatus memory;
  memory.devices = ListDevices();
  std::map<std::string, std::string> session_of;
  for (const auto& session : Sessions()) {
    if (!session->finished() && !session->client_session().empty())
      session_of[session->name()] = session->client_session();
  }
  for (const auto& volume : volumes_.List({.in_memory = true}))
    session_of[volume.name] = volume.session;
  for (int d = 0; d < ledger_.devices(); ++d) {
    for (const auto& holder : ledger_.HoldersOf(d)) {
      const auto it = session_of.find(holder.name);
      memory.holders.push_back({.what = holder,
                                .device = base::DeviceName(d),
                                .session = it == session_of.end() ? "" : it->second});
    }
  }
  memory.tiers = spiller_->Uses();
  return memory;
}

void EngineImpl::BeginDrain() {
  draining_ = true;
  jobs_.BeginDrain();
  for (const auto& session : Sessions()) {
    if (!session->finished()) session->Stop("DRAINED", "the server is draining");
  }
}

void EngineImpl::EndNow(const std::string& why) {
  for (const auto& session : Sessions()) {
    if (!session->finished()) session->Cancel("SERVER_STOPPED", why);
  }
  jobs_.CancelAll("SERVER_STOPPED", why);
  committer_.CancelAll();
}

bool EngineImpl::Idle() {
  const auto sessions = Sessions();
  return committer_.Pending() == 0 && deriver_.Pending() == 0 && spiller_->Pending() == 0 &&
         jobs_.Idle() &&
         std::all_of(sessions.begin(), sessions.end(), [](const auto& s) { return s->finished(); });
}

absl::StatusOr<std::vector<int>> EngineImpl::DevicesFor(model::ResolvedScan& scan) {
  std::vector<memory::DeviceLoad> loads;
  const auto sessions = Sessions();
  for (size_t d = 0; d < devices_.size(); ++d) {
    memory::DeviceLoad load{.health = devices_[d]->Health(),
                            .free_bytes = ledger_.UseOf(static_cast<int>(d)).free()};
    for (const auto& session : sessions) {
      if (session->finished() || !session->Uses(static_cast<int>(d))) continue;
      ++(session->state() == model::ScanState::kQueued ? load.waiting : load.running);
    }
    loads.push_back(std::move(load));
  }
  const auto healthy = std::count_if(
      loads.begin(), loads.end(), [](const memory::DeviceLoad& load) { return load.health.ok(); });
  if (const model::Spread& spread = scan.spec.spread; spread.striped) {
    const int64_t named = spread.devices.empty() ? spread.count : std::ssize(spread.devices);
    scan.stripe_devices = named > 0 ? named : healthy;
  }
  memory::DeviceWish wish{.device = scan.spec.device, .spread = scan.spec.spread};
  for (const auto& device : devices_) {  // what one needs, they all need
    if (!device->Health().ok()) continue;
    wish.home_bytes = BytesOf(scan::Needs(scan, *device));
    wish.peer_bytes = BytesOf(scan::PeerNeeds(scan, *device));
    break;
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<int> chosen, memory::ChooseDevices(wish, loads));
  if (scan.stripe_devices > 0) scan.stripe_devices = std::ssize(chosen);
  return chosen;
}

void EngineImpl::PollDeviceHealth() {
  for (size_t d = 0; d < devices_.size(); ++d) {
    const absl::Status health = devices_[d]->Health();
    if (health.ok() || !device_watch_.Lost(static_cast<int>(d))) continue;
    Log(LogLevel::kError, "device lost",
        {{"device", base::DeviceName(static_cast<int>(d))},
         {"reason", std::string(health.message())}});
    device_watch_.Tell(ListDevices());
    for (const auto& session : Sessions()) {
      if (session->Uses(static_cast<int>(d))) session->DeviceLost();
    }
  }
}

}  // namespace octavo::engine
