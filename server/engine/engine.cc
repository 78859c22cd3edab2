#include "server/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/device_names.h"
#include "server/base/resource_names.h"
#include "server/engine/internal.h"
#include "server/memory/device_budget.h"

namespace octavo::engine {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineConfig config,
                                                       std::vector<std::unique_ptr<Device>> devices,
                                                       storage::CommitStore* store) {
  std::vector<int64_t> budgets;
  std::vector<Stream> streams;
  const base::DeviceNames names(static_cast<int>(devices.size()), config.host_for_jobs);
  const memory::BudgetKeys keys{.fraction = config.memory_fraction,
                                .bytes = config.memory_bytes,
                                .host_for_jobs_bytes = config.host_for_jobs_bytes};
  for (int d = 0; d < names.size(); ++d) {
    const auto& device = devices[static_cast<size_t>(d)];
    OCTAVO_ASSIGN_OR_RETURN(const DeviceMemory memory, device->Memory());
    const bool for_jobs = names.IsForJobs(d);
    const int64_t budget = keys.BudgetOf(for_jobs, memory);
    if (budget > memory.free_bytes || budget <= 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(keys.SetFor(for_jobs) <= 0 ? "device.memory_fraction"
                       : for_jobs                 ? "device.host_for_jobs_bytes"
                                                  : "device.memory_bytes",
                       ": asks for ", budget, " bytes of ", names.Name(d), "; allowed 1 to ",
                       memory.free_bytes, ", which are free of its ", memory.total_bytes));
    }
    budgets.push_back(budget);
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
    streams.push_back(std::move(stream));
  }
  source::SetCameraInterfaces(config.camera_interfaces);
  return std::unique_ptr<Engine>(
      new Engine(std::move(config), std::move(devices), budgets, std::move(streams), store));
}

Engine::Engine(EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
               const std::vector<int64_t>& budgets, std::vector<Stream> streams,
               storage::CommitStore* store)
    : components_(std::make_unique<Components>(std::move(config), std::move(devices), budgets,
                                               std::move(streams), store, &jobs_)),
      devices_(components_.get()),
      scans_(components_.get(), &devices_),
      volumes_(components_.get()),
      jobs_(components_.get()),
      operations_(components_.get()),
      buffer_commits_(components_.get()),
      exports_(&components_->exports, &components_->feeds, &components_->frame_feeds,
               &components_->buffers),
      streams_(&components_->publisher, &components_->held_frames, &components_->earlier),
      clients_(components_.get()),
      grants_(components_.get()),
      orphans_(&components_->volumes, &components_->spiller, &components_->auto_committer,
               &components_->config.root_rights),
      lifetimes_({.clock = components_->clock,
                  .audit = &components_->audit,
                  .sessions = &components_->sessions,
                  .leases = &components_->leases,
                  .scans = &components_->scans,
                  .jobs = &components_->jobs,
                  .volumes = &components_->volumes,
                  .spiller = &components_->spiller,
                  .events = &components_->volume_events,
                  .orphans = &orphans_,
                  .exports = &components_->exports,
                  .feeds = &components_->feeds,
                  .buffers = &components_->buffers,
                  .workers = &components_->workers}),
      beats_("oct-beat", Beats()),
      upkeep_("oct-keeper", Upkeep()),
      records_("oct-resume", Records()) {
  components_->history.Start(
      {.scan = [this](const std::string& name) { return scans_.GetNumbered(name); },
       .jobs = [this](uint64_t* seen) { return components_->jobs.ChangedSince(seen); },
       .volume = [this](const std::string& name) { return components_->volumes.Get(name); }});
}

// Tasks that touch no disk.
std::vector<Housekeeping::Task> Engine::Beats() {
  using std::chrono::milliseconds;
  return {{.name = "frames that a rate limit held back",
           .period = milliseconds(50),
           .run = [this] { components_->publisher.Tick(); }},
          {.name = "jobs that wait for memory",
           .period = milliseconds(50),
           .run = [this] { components_->jobs.Tick(); }},
          {.name = "health of the devices", .period = milliseconds(50), .run = [this] {
             devices_.PollHealth();
           }}};
}

// Tasks that may wait for a disk (spilled files are removed, destinations are looked up) or for the
// turn of the buffers.
std::vector<Housekeeping::Task> Engine::Upkeep() {
  using std::chrono::milliseconds;
  return {{.name = "lifetimes", .period = milliseconds(100), .run = [this] { lifetimes_.Check(); }},
          {.name = "marks of volumes on disk",
           .period = milliseconds(100),
           .run = [this] { components_->volumes.tiers().NoteMarks(); }},
          {.name = "buffers that expire", .period = milliseconds(500), .run = [this] {
             components_->buffers.Housekeep();
           }}};
}

// The disk of the server's state.
std::vector<Housekeeping::Task> Engine::Records() {
  return {{.name = "records of scans that go on after a restart",
           .period = std::chrono::milliseconds(500),
           .run = [this] { scans_.TendRecords(); }}};
}

// Threads that call into the engine's parts end before the parts are destroyed.
Engine::~Engine() {
  BeginDrain();
  beats_.Stop();
  upkeep_.Stop();
  records_.Stop();
  components_->volumes.tiers().NoteMarks();  // those of the last moment
  EndNow("the server ended");
  components_->jobs.Shutdown();
  components_->auto_committer.ForgetJobs();
  jobs_.StopWatching();
  components_->operation_watches.watches().Stop();
  scans_.StopWatching();
  // The threads of scans look up their sessions until they have finished, and none of them may
  // release the last reference to its session.
  for (const auto& session : components_->scans.All()) session->WaitUntilFinished();
  records_.RunNow();            // all have ended now, and this daemon in order
  components_->history.Stop();  // it looks up what has ended
  components_->scans.Clear();
}

buffer::BufferStore& Engine::buffers() { return components_->buffers; }
mosaic::Mosaics& Engine::mosaics() { return components_->mosaics; }
memory::QuotaBook& Engine::quotas() { return components_->quotas; }
const security::RootRights& Engine::root_rights() const { return components_->config.root_rights; }

const std::vector<std::string>& Engine::storage_roots() const {
  return components_->storage->roots();
}

std::map<std::string, storage::QuarantineUse> Engine::Quarantines() {
  return components_->storage->Quarantines();
}

void Engine::BeginDrain() {
  components_->drain.Begin();
  components_->exports.BeginDrain();
  components_->buffers.BeginDrain();
  components_->jobs.BeginDrain();
  components_->spiller.BeginDrain();
  scans_.StopAll(Reason::kDrained, "the server is draining");
}

bool Engine::draining() const { return components_->drain.draining(); }

void Engine::EndNow(const std::string& why) {
  scans_.CancelAll(Reason::kServerStopped, why);
  components_->jobs.CancelAll(Reason::kServerStopped, why);
  components_->operations.CancelAll();
  components_->committer.CancelAll();
}

bool Engine::Idle() {
  const auto sessions = components_->scans.All();
  // What begins commits comes before them: a commit is begun before its scan or job has ended.
  return std::all_of(sessions.begin(), sessions.end(),
                     [](const auto& s) { return s->finished(); }) &&
         components_->jobs.Idle() && components_->deriver.Pending() == 0 &&
         components_->spiller.Pending() == 0 && components_->committer.Pending() == 0;
}

model::Stats Engine::Snapshot() {
  model::Stats stats;
  const auto sessions = components_->scans.AllAndPast(&stats);
  for (const auto& session : sessions) {
    const model::ScanStatus scan = session->Status();
    ++stats.scans_by_state[Name(scan.state)];
    stats.ring_occupancy = std::max(stats.ring_occupancy, scan.ring_occupancy);
    ScanRegistry::AddScan(*session, scan, &stats);
  }
  components_->resumes.AddTo(&stats);
  const auto counts = components_->volumes.Count();
  stats.volumes_by_state = counts.by_state;
  const int64_t dropped = stats.volumes_finished["dropped"];
  stats.volumes_finished = counts.finished;
  stats.volumes_finished["dropped"] = dropped;
  stats.oldest_held_seconds = counts.oldest_held_seconds;
  stats.volumes_by_tier = counts.by_tier;
  stats.chains_skipped = components_->derived_volumes.Skipped();
  stats.admission_refusals = components_->ledger.Refusals();
  stats.quota_refusals = components_->quotas.Refusals();
  components_->publisher.AddTo(&stats);
  components_->committer.AddTo(&stats);
  components_->jobs.AddTo(&stats);
  const operation::OperationTable::Counts operations = components_->operations.Count();
  stats.operations_running = operations.running;
  stats.operations_finished = operations.finished;
  stats.operations_kept = operations.kept;
  stats.operations_forgotten = operations.forgotten;
  components_->spiller.AddTo(&stats);
  const session::ClientSessions::Counts clients = components_->sessions.Count();
  stats.sessions = clients.alive;
  stats.sessions_expired = clients.expired;
  stats.grants = components_->grants.Count();
  const session::LeaseTable::Totals leases = components_->leases.CountAll();
  stats.leases = {{"SHARED", leases.now.shared},
                  {"EXCLUSIVE", leases.now.exclusive},
                  {"waiting", leases.now.waiting}};
  stats.leases_granted = leases.granted;
  stats.leases_expired = leases.expired;
  stats.lease_refusals = leases.refused;
  stats.lease_waits = leases.waits;
  stats.lease_wait_seconds = leases.wait_seconds;
  stats.devices = devices_.List();
  if (components_->config.history != nullptr) {
    const storage::HistoryWriter::Counts history = components_->config.history->Count();
    stats.history = {.on = true,
                     .failing = history.failing,
                     .written = history.written,
                     .dropped = history.dropped + components_->history.volumes().left_out(),
                     .errors = history.errors,
                     .waiting = history.waiting};
  }
  if (components_->config.audit != nullptr) {
    const security::AuditLog::Counts audit = components_->config.audit->Count();
    stats.audit = {.on = true,
                   .failing = audit.failing,
                   .written = audit.written,
                   .dropped = audit.dropped,
                   .left_out = audit.left_out,
                   .errors = audit.errors,
                   .waiting = audit.waiting};
  }
  const buffer::BufferTotals buffers = components_->buffers.Count();
  stats.buffers = {.count = buffers.buffers,
                   .owners = buffers.owners,
                   .largest_owner_bytes = buffers.largest_owner_bytes,
                   .quota_bytes = buffers.quota_bytes,
                   .replicas = {},
                   .bytes = {},
                   .imported_bytes = {},
                   .written_bytes = buffers.uploaded_bytes,
                   .read_bytes = buffers.read_bytes,
                   .forwarded_bytes = buffers.forwarded_bytes,
                   .operations = buffers.operations,
                   .gone = buffers.gone,
                   .refusals = buffers.refusals};
  for (const auto& [device, n] : buffers.replicas_on)
    stats.buffers.replicas[base::DeviceName(device)] = n;
  for (const auto& [device, bytes] : buffers.bytes_on)
    stats.buffers.bytes[base::DeviceName(device)] = bytes;
  stats.buffers.imports = buffers.loans;
  for (const auto& [device, bytes] : buffers.lent_bytes_on)
    stats.buffers.imported_bytes[base::DeviceName(device)] = bytes;
  return stats;
}

}  // namespace octavo::engine
