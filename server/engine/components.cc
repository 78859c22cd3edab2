#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/log.h"
#include "gpu/base/memory_limit.h"
#include "gpu/base/status.h"
#include "server/engine/internal.h"
#include "server/engine/operations.h"

namespace octavo::engine {
namespace {

const SystemClock kSystemClock;

int64_t HalfOfMemory() { return ReadMemoryLimit().total_bytes / 2; }

memory::DeviceSet WithFrames(const std::vector<std::unique_ptr<Device>>& devices,
                             const EngineConfig& config) {
  std::vector<memory::DeviceSet::Member> members;
  for (const auto& device : devices) {
    members.push_back(
        {.device = device.get(),
         .frames = std::make_shared<memory::FramePool>(device.get(), config.frame_pool_bytes)});
  }
  return memory::DeviceSet(std::move(members), config.host_for_jobs);
}

std::vector<Device*> PointersTo(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  return pointers;
}

std::vector<std::shared_ptr<memory::FramePool>> FramesOf(const memory::DeviceSet& devices) {
  std::vector<std::shared_ptr<memory::FramePool>> frames;
  for (int d = 0; d < devices.size(); ++d) frames.push_back(devices.frames(d));
  return frames;
}

/// The roots of commits, then those of replays that are not among them.
std::vector<std::string> ReadRoots(const storage::CommitStore& store, const EngineConfig& config) {
  std::vector<std::string> roots = store.roots();
  for (const std::string& root : config.replay_roots) {
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  }
  return roots;
}

/// Everybody, admins too, may have so many.
memory::QuotaRules OwnWaits() {
  constexpr int64_t kMost = 16;
  memory::QuotaRules rules;
  rules.SetUsual(memory::QuotaKind::kWatches, kMost);
  (void)rules.AddException(absl::StrCat("role:admin watches=", kMost));
  return rules;
}

std::vector<StreamRef> RefsTo(const std::vector<Stream>& streams) {
  std::vector<StreamRef> refs;
  for (const Stream& stream : streams) refs.push_back(stream.ref());
  return refs;
}

}  // namespace

Components::Components(EngineConfig configuration, std::vector<std::unique_ptr<Device>> all_devices,
                       const std::vector<int64_t>& budgets, std::vector<Stream> streams,
                       storage::CommitStore* store, job::JobObserver* job_observer)
    : config(std::move(configuration)),
      clock(config.clock != nullptr ? config.clock : &kSystemClock),
      storage(store),
      owned_devices(std::move(all_devices)),
      read_streams(std::move(streams)),
      devices(WithFrames(owned_devices, config)),
      earlier(config.earlier, clock->Now()),
      audit(config.audit),
      history(config.history, &audit, clock, earlier),
      resumes(config.resume, config.to_resume, clock),
      own_grants(config.grants != nullptr
                     ? nullptr
                     : std::make_unique<security::GrantBook>(config.server_id, clock)),
      grants(own_grants == nullptr ? *config.grants : *own_grants),
      quotas(config.quotas),
      own_waits(OwnWaits()),
      ledger(budgets, &quotas, config.host_for_jobs),
      slot_cache(&ledger, config.slot_cache_bytes),
      sessions(clock, config.sessions, config.server_id),
      leases(clock, config.most_leases, &sessions),
      operation_watches([this](const std::string& name) { return FindOperation(*this, name); }),
      operations(clock, config.server_id, &operation_watches),
      volume_watchers([this](model::VolumeStatus* volume) {
        volume->shared_leases = leases.CountOf(volume->name).shared;
      }),
      exports({.devices = PointersTo(owned_devices),
               .ledger = &ledger,
               .volumes = &volumes,
               .clock = clock,
               .server_id = config.server_id}),
      feeds({.exports = &exports, .volumes = &volumes, .scans = &scans, .clock = clock}),
      frame_feeds(&exports, &quotas, config.shared_frame_bytes),
      buffers({.devices = PointersTo(owned_devices),
               .ledger = &ledger,
               .volumes = &volumes,
               .leases = &leases,
               .clock = clock,
               .exports = &exports,
               .frames = FramesOf(devices),
               .server_id = config.server_id,
               .quota_bytes = config.buffer_quota_bytes,
               .handoff = config.handoff,
               .sessions = &sessions}),
      mosaics(&buffers),
      publisher(clock, config.frame_pool_bytes / 4, config.history_bytes / 8),
      volume_events(&publisher, clock),
      derived_volumes(&scans, &deriver, &volumes, &workers),
      volumes(&ledger, clock),
      scans({.entries = config.history_entries, .bytes = config.history_bytes}, &volumes, &spiller,
            earlier.LastNumber(storage::HistoryKind::kScan)),
      annotations(config.software, devices, &scans),
      auto_committer(
          &committer, &operations, &volumes, &scans, &jobs,
          [this](const security::Owner& owner, const std::string& destination,
                 absl::string_view field) { return CheckRoot(owner, destination, field); }),
      projector({.devices = devices, .streams = RefsTo(read_streams), .ledger = &ledger}),
      held_frames({.devices = devices,
                   .streams = RefsTo(read_streams),
                   .volumes = &volumes,
                   .projector = &projector,
                   .jobs = &jobs,
                   .workers = &workers}),
      spiller(
          {.volumes = &volumes,
           .ledger = &ledger,
           .clock = clock,
           .devices = devices,
           .folder = config.spill_folder,
           .host_bytes = config.spill_host_bytes,
           .meta_of = [this](const model::VolumeStatus& volume) { return annotations.Of(volume); }},
          std::max(1, config.spill_threads)),
      deriver({.devices = devices,
               .ledger = &ledger,
               .volumes = &volumes,
               .clock = clock,
               .workers = &workers,
               .server_id = config.server_id,
               .spiller = &spiller}),
      workers("oct-io", 4),
      committer(
          {.storage = store,
           .volumes = &volumes,
           .clock = clock,
           .devices = devices,
           .meta_of = [this](const model::VolumeStatus& volume) { return annotations.Of(volume); },
           .observer = &history},
          std::max(1, config.commit_threads)),
      reads({.roots = ReadRoots(*store, config),
             .setting = config.read_setting,
             .cufile = config.cufile,
             .clock = clock}),
      projection_memory(config.projection_bytes > 0 ? config.projection_bytes : HalfOfMemory()),
      jobs({.devices = devices,
            .ledger = &ledger,
            .volumes = &volumes,
            .publisher = &publisher,
            .clock = clock,
            .server_id = config.server_id,
            .spiller = &spiller,
            .observer = job_observer,
            .quotas = &quotas,
            .last_number = earlier.LastNumber(storage::HistoryKind::kJob)}) {
  volumes.SetProtections({.leases = &leases, .mappings = &exports});
  volumes.AddObserver(&feeds);
  volumes.AddObserver(&volume_events);
  volumes.AddObserver(&waiters);
  volumes.AddObserver(&volume_watchers);
  volumes.AddObserver(&derived_volumes);
  if (audit.on()) volumes.AddObserver(&audit);
  if (config.history != nullptr) volumes.AddObserver(&history.volumes());
  volumes.SetEarlier([this](const std::string& name) { return earlier.FindVolume(name); });
  publisher.SetHeldFrames(&held_frames);
  volumes.SetMirrors(config.mirror);
  constexpr size_t kMostNamed = 20;  // of many; the list of volumes has them all
  size_t held_again = 0;
  for (const std::string& line : spiller.Recover(config.spilled)) {
    // What is as it was is no trouble.
    const bool held = absl::StrContains(line, ": held again as ");
    if (held && ++held_again > kMostNamed) continue;
    Log(held ? LogLevel::kInfo : LogLevel::kWarning, "spilled volume found", {{"volume", line}});
  }
  if (held_again > kMostNamed)
    Log(LogLevel::kInfo, "more spilled volumes found", {{"held_again", held_again - kMostNamed}});
  if (!config.mirror) return;
  mirrorer = std::make_unique<volume::Mirrorer>(
      volume::Mirrorer::Context{.spiller = &spiller, .volumes = &volumes, .busy = [this] {
                                  return spiller.Busy() || committer.Busy() || drain.draining();
                                }});
}

absl::Status Components::CheckRoot(const security::Owner& who, const std::string& destination,
                                   absl::string_view field) const {
  if (!config.root_rights.RootsOf(who).has_value()) return absl::OkStatus();
  const std::vector<std::string> mine = config.root_rights.Among(storage->roots(), who);
  const auto path = storage::ResolveDestination(storage->roots(), destination);
  if (!path.ok()) {
    // A template may lead to a root once its fields are filled in.
    if (absl::StrContains(destination, '{')) return absl::OkStatus();
    // Refused as everybody's is, but of the roots the principal is told its own.
    const absl::Status said = mine.empty()
                                  ? config.root_rights.Check(who, "", field, destination)
                                  : storage::ResolveDestination(mine, destination).status();
    if (!absl::IsInvalidArgument(said)) return said;
    absl::string_view what = said.message();
    absl::ConsumePrefix(&what, "options.destination: ");
    return InvalidField(field, what);
  }
  const absl::Status allowed = config.root_rights.Check(who, *path, field, destination);
  if (allowed.ok() || absl::StartsWith(destination, "/") || mine.empty()) return allowed;
  return WithInfo(
      absl::Status(allowed.code(),
                   absl::StrCat(allowed.message(),
                                "; relative paths lie in the first storage root, so write '",
                                absl::StripSuffix(mine.front(), "/"), "/", destination, "'")),
      InfoOf(allowed));
}

}  // namespace octavo::engine
