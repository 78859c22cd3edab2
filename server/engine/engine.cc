#include "server/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <pthread.h>
#include <set>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/admission.h"
#include "server/engine/buffer_store.h"
#include "server/engine/committer.h"
#include "server/engine/device_choice.h"
#include "server/engine/device_watch.h"
#include "server/engine/job_kinds.h"
#include "server/engine/job_queue.h"
#include "server/engine/names.h"
#include "server/engine/provenance.h"
#include "server/engine/publisher.h"
#include "server/engine/scan_queue.h"
#include "server/engine/scan_session.h"
#include "server/engine/scan_session_parts.h"
#include "server/engine/scan_watch.h"
#include "server/engine/spiller.h"
#include "server/engine/volume_reader.h"
#include "server/engine/volume_waits.h"

namespace octavo::engine {
namespace {

constexpr size_t kEndedScansKept = 1000;
constexpr int64_t kMostChainsWaiting = 8;
const SystemClock kSystemClock;

absl::Status Draining() {
  return WithInfo(absl::UnavailableError("the server is draining and takes no new scans; try another one or later"),
                  {.reason = "DRAINING", .field = "", .numbers = {{"retryable", "true"}}});
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineConfig config, std::vector<std::unique_ptr<Device>> devices, std::vector<int64_t> budgets, std::vector<Stream> read_streams,
             storage::CommitStore* store)
      : config_(std::move(config)),
        clock_(config_.clock != nullptr ? config_.clock : &kSystemClock),
        storage_(store),
        devices_(std::move(devices)),
        read_streams_(std::move(read_streams)),
        ledger_(std::move(budgets)),
        slot_cache_(&ledger_, config_.slot_cache_bytes),
        leases_(clock_),
        sessions_of_clients_(clock_, config_.sessions, config_.server_id),
        publisher_(clock_),
        volumes_(&ledger_, clock_,
                 [this](const VolumeStatus& volume) {
                   PublishVolumeEvent(volume);
                   volume_waits_.Tell(volume);
                   MakeChains(volume);
                 }),
        deriver_({.device_of = [this](int d) { return devices_[At(d)].get(); },
                  .ledger = &ledger_,
                  .volumes = &volumes_,
                  .clock = clock_,
                  .workers = &workers_,
                  .server_id = config_.server_id,
                  .restore = [this](const std::string& volume) { return spiller_->RestoreNow(volume).status(); }}),
        workers_("oct-io", 4),
        committer_({.storage = store,
                    .volumes = &volumes_,
                    .clock = clock_,
                    .device_of = [this](int d) { return std::pair(devices_[At(d)].get(), frames_[At(d)]); },
                    .meta_of = [this](const VolumeStatus& v) { return Meta(v); }},
                   std::max(1, config_.commit_threads)),
        jobs_({.devices = static_cast<int>(devices_.size()),
               .device_of = [this](int d) { return devices_[At(d)].get(); },
               .frames_of = [this](int d) { return frames_[At(d)]; },
               .ledger = &ledger_,
               .volumes = &volumes_,
               .publisher = &publisher_,
               .clock = clock_,
               .server_id = config_.server_id,
               .changed = [this] { job_watches_.Wake(); }}),
        job_watches_([this](const std::string& name) { return GetJob(name); }, [this] { jobs_.Tick(); }),
        watches_([this](const std::string& name) { return GetScan(name); },
                 [this] {
                   publisher_.Tick();
                   if (ready_) LookAtDevices();
                 }) {
    for (const auto& device : devices_) frames_.push_back(std::make_shared<FramePool>(device.get(), config_.frame_pool_bytes));
    SetCameraInterfaces(config_.camera_interfaces);
    spiller_ = std::make_unique<Spiller>(Spiller::Context{.volumes = &volumes_,
                                                          .ledger = &ledger_,
                                                          .clock = clock_,
                                                          .device_of = [this](int d) { return std::pair(devices_[At(d)].get(), frames_[At(d)]); },
                                                          .folder = config_.spill_folder,
                                                          .host_bytes = config_.spill_host_bytes,
                                                          .devices = static_cast<int>(devices_.size()),
                                                          .meta_of = [this](const VolumeStatus& v) { return Meta(v); }},
                                         std::max(1, config_.spill_threads));
    for (const std::string& line : spiller_->Recover(config_.spilled)) Log(LogLevel::kWarning, "spilled volume found", {{"volume", line}});
    std::vector<Device*> raw;
    for (const auto& device : devices_) raw.push_back(device.get());
    buffers_ = std::make_unique<BufferStore>(BufferStore::Context{.devices = std::move(raw),
                                                                  .ledger = &ledger_,
                                                                  .volumes = &volumes_,
                                                                  .leases = &leases_,
                                                                  .clock = clock_,
                                                                  .workers = &workers_,
                                                                  .frames = frames_,
                                                                  .server_id = config_.server_id,
                                                                  .draining = [this] { return draining_.load(); },
                                                                  .quota_bytes = config_.buffer_quota_bytes});
    publisher_.SetLoader([this](const FramePtr& header, std::function<void(FramePtr)> done) { LoadVolumeFrame(header, std::move(done)); });
    ready_ = true;
    keeper_ = std::jthread([this](const std::stop_token& stop) {
      pthread_setname_np(pthread_self(), "oct-keeper");
      while (!stop.stop_requested()) {
        Housekeep();
        MutexLock lock(keeper_mutex_);
        if (!keeper_end_) keeper_cv_.WaitFor(lock, std::chrono::milliseconds(100));
      }
    });
  }

  ~EngineImpl() override {
    BeginDrain();
    {
      MutexLock lock(keeper_mutex_);
      keeper_end_ = true;
      keeper_.request_stop();
      keeper_cv_.NotifyAll();
    }
    keeper_.join();
    for (const auto& session : Sessions()) session->Cancel();
    jobs_.Shutdown();
    committer_.CancelAll();
    job_watches_.Stop();
    watches_.Stop();
    MutexLock lock(mutex_);
    sessions_.clear();  // joins their threads; no lock of ours is taken by those
  }

  // -- scans

  absl::StatusOr<ScanStatus> SubmitScan(const ScanSpec& spec, AdmissionReport* report) override {
    MutexLock submit(submit_mutex_);  // one at a time: two retries of one request must not both start
    if (!spec.request_id.empty()) {
      if (auto it = requests_.find(spec.request_id); it != requests_.end()) {
        if (it->second.first != spec.request_digest) {
          return WithInfo(
              absl::AlreadyExistsError(absl::StrCat("request_id '", spec.request_id, "' was used with another body (", it->second.second, ")")),
              {.reason = "IDEMPOTENCY_MISMATCH", .field = "request_id", .numbers = {{"scan", it->second.second}}});
        }
        return GetScan(it->second.second);
      }
    }
    if (draining_) return Draining();
    auto admitted = Admit(spec, report);
    if (!admitted.ok()) {
      MutexLock lock(mutex_);
      const std::string reason = InfoOf(admitted.status()).reason;
      ++rejected_[reason.empty() ? absl::StatusCodeToString(admitted.status().code()) : reason];
      return admitted.status();
    }
    const std::shared_ptr<ScanSession> session = *std::move(admitted);
    ++scans_admitted_;
    if (!spec.request_id.empty()) requests_[spec.request_id] = {spec.request_digest, session->name()};
    const ScanStatus status = StatusOf(*session);
    Log(LogLevel::kInfo, status.state == ScanState::kQueued ? "scan queued" : "scan started",
        {{"scan", status.name}, {"title", spec.title}, {"device", status.device}});
    return status;
  }

  absl::StatusOr<AdmissionReport> PlanScan(const ScanSpec& spec, std::string* plan) override {
    OCTAVO_ASSIGN_OR_RETURN(const ResolvedScan scan, ResolveScan(spec, config_.replay_roots));
    OCTAVO_RETURN_IF_ERROR(CheckAutoCommit(scan, storage_->roots()));
    OCTAVO_RETURN_IF_ERROR(CheckChains(scan));
    OCTAVO_RETURN_IF_ERROR(CheckSpill(scan.spec.retention));
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> chosen, DevicesFor(scan));
    AdmissionReport report = ledger_.Plan(chosen[0], ScanSession::Needs(scan, *devices_[At(chosen[0])]));
    for (size_t i = 1; report.admitted && i < chosen.size(); ++i) {
      AdmissionReport of_peer = ledger_.Plan(chosen[i], ScanSession::PeerNeeds(scan, *devices_[At(chosen[i])]));
      if (!of_peer.admitted) report = std::move(of_peer);
    }
    AddRunFigures(scan, storage_->roots(), SpillFree(scan), &report);
    if (plan != nullptr) *plan = DescribeChain(scan.chain);
    return report;
  }

  absl::StatusOr<PatternWaveform> PlanWaveform(const ScanSpec& spec, bool odd_volume) override {
    OCTAVO_ASSIGN_OR_RETURN(const ResolvedScan scan, ResolveScan(spec, config_.replay_roots));
    const Pattern& pattern = scan.spec.pattern;
    const double rate = RecordRateHz(spec);
    if (pattern.plan != nullptr) return MakeWaveform(pattern, *pattern.plan, odd_volume, rate);
    OCTAVO_ASSIGN_OR_RETURN(const PatternPlan plan, MakePlan(pattern, rate));
    return MakeWaveform(pattern, plan, odd_volume, rate);
  }

  absl::StatusOr<ScanStatus> GetScan(const std::string& name) override {
    OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
    return StatusOf(*session);
  }

  std::vector<ScanStatus> ListScans() override {
    std::vector<ScanStatus> list;
    for (const auto& session : Sessions()) list.push_back(StatusOf(*session));
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.created.monotonic_ns > b.created.monotonic_ns; });
    return list;
  }

  absl::StatusOr<std::unique_ptr<Handle>> WatchScan(const std::string& name, std::function<void(const ScanStatus&)> callback) override {
    OCTAVO_RETURN_IF_ERROR(Find(name).status());
    return watches_.Add(name, std::move(callback));
  }

  absl::StatusOr<ScanStatus> UpdateScan(const std::string& name, const Processing& processing) override {
    OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
    OCTAVO_ASSIGN_OR_RETURN(ResolvedScan updated, ResolveUpdate(session->Resolved(), processing));
    OCTAVO_RETURN_IF_ERROR(session->Update(std::move(updated)));
    return session->Status();
  }

  absl::StatusOr<ScanStatus> StopScan(const std::string& name) override {
    OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
    session->Stop("STOPPED", "stopped by a client after the current volume");
    return session->Status();
  }

  absl::StatusOr<ScanStatus> CancelScan(const std::string& name) override {
    OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
    session->Cancel();
    return session->Status();
  }

  absl::StatusOr<ScanEvent> MarkScan(const std::string& name, const std::string& marker) override {
    OCTAVO_ASSIGN_OR_RETURN(auto session, Find(name));
    return session->Mark(marker);
  }

  // -- sources

  absl::StatusOr<std::shared_ptr<PushPort>> OpenPush(const std::string& scan) override {
    OCTAVO_ASSIGN_OR_RETURN(auto session, Find(scan));
    return session->Push();
  }

  absl::StatusOr<std::vector<CameraInfo>> ListCameras() override { return engine::ListCameras(); }

  // -- volumes

  absl::StatusOr<VolumeStatus> GetVolume(const std::string& name) override {
    OCTAVO_ASSIGN_OR_RETURN(VolumeStatus volume, volumes_.Get(name));
    return WithLeases(std::move(volume));
  }
  std::vector<VolumeStatus> ListVolumes() override {
    std::vector<VolumeStatus> list = volumes_.List();
    std::map<std::string, int64_t> shared;
    for (const Lease& lease : leases_.List()) ++shared[lease.resource];
    for (VolumeStatus& volume : list) {
      if (const auto it = shared.find(volume.name); it != shared.end()) volume.shared_leases = it->second;
    }
    return list;
  }

  absl::StatusOr<std::shared_ptr<VolumeReader>> ReadVolume(const std::string& name, const std::vector<int64_t>& start,
                                                           const std::vector<int64_t>& count) override {
    OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, volumes_.PinAnyTier(name));
    const size_t d = At(pinned.device);
    if (const absl::Status health = devices_[d]->Health(); pinned.slot != nullptr && !health.ok()) {
      return WithInfo(
          absl::DataLossError(absl::StrCat(name, " was in the memory of ", DeviceName(pinned.device), ", which is lost: ", health.message())),
          {.reason = "LOST", .field = "name", .numbers = {{"device", DeviceName(pinned.device)}}});
    }
    return MakeVolumeReader(std::move(pinned), start, count, devices_[d].get(), read_streams_[d].ref(), frames_[d], &workers_);
  }

  absl::StatusOr<VolumeStatus> HoldVolume(const std::string& name, bool release) override {
    OCTAVO_ASSIGN_OR_RETURN(const VolumeStatus volume, volumes_.Get(name));
    const Retention retention = volume.origin == nullptr ? Retention{} : volume.origin->spec.retention;
    const bool live = retention.mode == RetentionMode::kLive;
    if (release) {
      const auto session = Find(volume.scan);
      return volumes_.Unmark(name, live && session.ok() && !(*session)->finished());
    }
    const int64_t limit = retention.hold_slots;
    auto held = volumes_.Keep(name, limit);
    // The next mark shall find room.
    if (live && Spills(retention.on_full) && volumes_.CountOf(volume.scan).kept_slots >= limit) {
      spiller_->Request(volume.scan, TierOf(retention.on_full));
    }
    if (!held.ok()) return held.status();
    return WithLeases(*std::move(held));
  }

  void SpillVolume(const std::string& name, Tier tier, std::function<void(absl::StatusOr<VolumeStatus>)> done) override {
    spiller_->Spill(name, tier, std::move(done));
  }
  void RestoreVolume(const std::string& name, std::function<void(absl::StatusOr<VolumeStatus>)> done) override {
    spiller_->Restore(name, std::move(done));
  }

  absl::StatusOr<VolumeStatus> DiscardVolume(const std::string& name) override {
    // An exclusive lease is never granted of a volume: whoever holds a shared one is in the way of somebody who wants to be alone.
    if (const auto leases = leases_.List(name); !leases.empty()) {
      const std::string who = leases[0].holder.empty() ? leases[0].session : leases[0].holder;
      return WithInfo(
          absl::AbortedError(absl::StrCat(name, " is leased (SHARED) by ", who, "; it can be discarded when the lease is given back")),
          {.reason = "LEASED", .field = "name", .numbers = {{"mode", "SHARED"}, {"holder", who}, {"leases", absl::StrCat(leases.size())}}});
    }
    return volumes_.Discard(name, "discarded by a client");
  }

  absl::Status DeriveVolume(const DeriveSpec& spec, std::function<void(absl::StatusOr<VolumeStatus>)> done) override {
    if (draining_) return Draining();
    return deriver_.Derive(spec, std::move(done));
  }

  absl::Status WaitVolume(const std::string& name, std::function<void(absl::StatusOr<VolumeStatus>)> done) override {
    return volume_waits_.Add(
        name, [this](const std::string& n) { return volumes_.Get(n); }, std::move(done));
  }

  BufferStore& buffers() override { return *buffers_; }

  absl::StatusOr<std::shared_ptr<Handle>> CommitVolume(const std::string& name, const CommitOptions& options, const std::string& request_id,
                                                       CommitCallbacks callbacks) override {
    return committer_.Commit(name, options, request_id, std::move(callbacks));
  }

  // -- clients

  ClientSessions::Opened OpenSession(const std::string& client) override { return sessions_of_clients_.Open(client); }
  absl::StatusOr<SessionStatus> KeepAlive(const std::string& secret) override {
    OCTAVO_ASSIGN_OR_RETURN(const ClientSessions::Alive alive, sessions_of_clients_.KeepAlive(secret));
    if (alive.revived) {
      volumes_.Adopt(alive.session.name);
      Log(LogLevel::kInfo, "session revived", {{"session", alive.session.name}, {"client", alive.session.client}});
    }
    return WithHoldings({alive.session})[0];
  }
  absl::StatusOr<SessionStatus> CloseSession(const std::string& secret) override {
    OCTAVO_ASSIGN_OR_RETURN(const SessionStatus session, sessions_of_clients_.Close(secret));
    leases_.EndSession(session.name);  // the rest is the housekeeping's
    return WithHoldings({session})[0];
  }
  std::vector<SessionStatus> ListSessions() override { return WithHoldings(sessions_of_clients_.List()); }
  ClientSessions& sessions() override { return sessions_of_clients_; }
  LeaseTable& leases() override { return leases_; }

  // -- jobs

  absl::StatusOr<JobStatus> SubmitJob(const JobSpec& spec, AdmissionReport* report) override {
    MutexLock submit(job_submit_mutex_);  // one at a time: two retries of one request must not both be queued
    OCTAVO_ASSIGN_OR_RETURN(const std::optional<JobStatus> earlier, jobs_.Earlier(spec));
    if (earlier.has_value()) return *earlier;
    if (draining_) return Draining();
    OCTAVO_ASSIGN_OR_RETURN(auto work, MakeJobWork(spec, {.volumes = &volumes_}));
    return jobs_.Submit(spec, std::move(work), report);
  }
  absl::StatusOr<AdmissionReport> PlanJob(const JobSpec& spec, std::string* plan) override {
    OCTAVO_ASSIGN_OR_RETURN(const auto work, MakeJobWork(spec, {.volumes = &volumes_}));
    return jobs_.Plan(spec, *work, plan);
  }
  absl::StatusOr<JobStatus> GetJob(const std::string& name) override { return jobs_.Get(name); }
  std::vector<JobStatus> ListJobs() override { return jobs_.List(); }
  absl::StatusOr<std::unique_ptr<Handle>> WatchJob(const std::string& name, std::function<void(const JobStatus&)> callback) override {
    OCTAVO_RETURN_IF_ERROR(jobs_.Get(name).status());
    return job_watches_.Add(name, std::move(callback));
  }
  absl::StatusOr<JobStatus> CancelJob(const std::string& name) override { return jobs_.Cancel(name); }

  // -- products

  absl::StatusOr<std::shared_ptr<Subscription>> Subscribe(const SubscribeSpec& spec, std::function<void()> notify) override {
    return publisher_.Subscribe(spec, std::move(notify));
  }

  // -- the whole

  std::vector<DeviceStatus> ListDevices() override {
    std::vector<DeviceStatus> list;
    const auto sessions = Sessions();
    for (size_t d = 0; d < devices_.size(); ++d) {
      const DeviceInfo& info = devices_[d]->info();
      const Ledger::Use use = ledger_.UseOf(static_cast<int>(d));
      const absl::Status health = devices_[d]->Health();
      DeviceStatus status;
      status.name = DeviceName(static_cast<int>(d));
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
      status.limbo_bytes = use.limbo;
      status.free_bytes = use.free();
      status.peak_bytes = use.peak;
      for (const auto& session : sessions) status.running_scans += session->Uses(static_cast<int>(d)) && !IsFinal(session->Status().state);
      status.running_jobs = jobs_.RunningOn(static_cast<int>(d));
      list.push_back(std::move(status));
    }
    return list;
  }

  std::unique_ptr<Handle> WatchDevices(std::function<void(const std::vector<DeviceStatus>&)> callback) override {
    return device_watch_.Add(std::move(callback), ListDevices());
  }

  absl::Status Measure(MeasureSpec spec, const TellMeasured& tell) override {
    if (spec.device.empty()) spec.device = DeviceName(0);
    size_t d = 0;
    while (d < devices_.size() && DeviceName(static_cast<int>(d)) != spec.device) ++d;
    if (d == devices_.size()) {
      return InvalidField("device", absl::StrCat("is '", spec.device, "'; allowed are devices/0 to devices/", devices_.size() - 1));
    }
    Device& device = *devices_[d];
    OCTAVO_RETURN_IF_ERROR(device.Health());
    OCTAVO_RETURN_IF_ERROR(ResolveMeasure(&spec, device));
    if (measuring_.exchange(true)) {
      return WithInfo(absl::FailedPreconditionError("another measurement runs"), {.reason = "MEASURING", .field = "", .numbers = {}});
    }
    const absl::Cleanup measured = [this] { measuring_ = false; };
    const int64_t scans = scans_admitted_;
    for (const auto& session : Sessions()) {
      if (session->finished() || IsFinal(session->Status().state)) continue;
      return WithInfo(absl::FailedPreconditionError(absl::StrCat(session->name(), " runs; a measurement needs the device for itself")),
                      {.reason = "SCANS_RUNNING", .field = "", .numbers = {{"scan", session->name()}}});
    }
    OCTAVO_ASSIGN_OR_RETURN(const auto charges, ledger_.Reserve(static_cast<int>(d), "measurement", "",
                                                                {{.what = "measurement", .bytes = MeasureBytes(spec, device), .count = 1}}, nullptr));
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

  MemoryStatus GetMemory() override {
    MemoryStatus memory;
    memory.devices = ListDevices();
    std::map<std::string, std::string> session_of;
    for (const auto& session : Sessions()) session_of[session->name()] = session->Status().spec.session;
    for (const auto& volume : volumes_.List()) session_of[volume.name] = volume.session;
    for (int d = 0; d < ledger_.devices(); ++d) {
      for (const auto& holder : ledger_.HoldersOf(d)) {
        const auto it = session_of.find(holder.name);
        memory.holders.push_back({.what = holder, .device = DeviceName(d), .session = it == session_of.end() ? "" : it->second});
      }
    }
    memory.tiers = spiller_->Uses();
    return memory;
  }

  void Housekeep() override {
    MutexLock one_at_a_time(housekeeping_mutex_);
    leases_.Expire();
    for (const std::string& session : sessions_of_clients_.Expire()) {
      leases_.EndSession(session);
      Log(LogLevel::kInfo, "session ended", {{"session", session}});
      // Scratch: nobody will look at what would come.
      for (const auto& scan : Sessions()) {
        const ScanSpec spec = scan->Resolved().spec;
        if (spec.session == session && spec.retention.orphan == Orphan::kDiscard && !scan->finished()) {
          scan->Stop("SESSION_EXPIRED", absl::StrCat(session, " has ended; the scan's volumes are scratch"));
        }
      }
    }
    const VolumeStore::Due due = volumes_.Tick([this](const std::string& session) { return sessions_of_clients_.Gone(session); });
    for (const VolumeStatus& volume : due.warned) TellExpiring(volume);
    for (const VolumeStatus& volume : due.expired) Log(LogLevel::kInfo, "volume expired", {{"volume", volume.name}, {"reason", volume.reason}});
    for (const VolumeStatus& volume : due.orphans) TakeCareOf(volume);
  }

  const std::vector<std::string>& storage_roots() const override { return storage_->roots(); }

  Stats Snapshot() override {
    Stats stats;
    for (const auto& session : Sessions()) {
      const ScanStatus scan = session->Status();
      ++stats.scans_by_state[Name(scan.state)];
      stats.ring_occupancy = std::max(stats.ring_occupancy, scan.ring_occupancy);
      AddSession(*session, scan, &stats);
    }
    {
      MutexLock lock(mutex_);
      AddStats(past_, &stats);
      stats.scans_rejected = rejected_;
    }
    const auto counts = volumes_.Count();
    stats.volumes_by_state = counts.by_state;
    const int64_t dropped = stats.volumes_finished["dropped"];
    stats.volumes_finished = counts.finished;
    stats.volumes_finished["dropped"] = dropped;
    stats.oldest_held_seconds = counts.oldest_held_seconds;
    stats.volumes_by_tier = counts.by_tier;
    stats.admission_refusals = ledger_.Refusals();
    publisher_.AddTo(&stats);
    committer_.AddTo(&stats);
    jobs_.AddTo(&stats);
    spiller_->AddTo(&stats);
    const ClientSessions::Counts clients = sessions_of_clients_.Count();
    stats.sessions = clients.alive;
    stats.sessions_expired = clients.expired;
    const LeaseTable::Totals leases = leases_.CountAll();
    stats.leases = {{"SHARED", leases.now.shared}, {"EXCLUSIVE", leases.now.exclusive}, {"waiting", leases.now.waiting}};
    stats.leases_granted = leases.granted;
    stats.leases_expired = leases.expired;
    stats.lease_refusals = leases.refused;
    stats.lease_waits = leases.waits;
    stats.lease_wait_seconds = leases.wait_seconds;
    stats.devices = ListDevices();
    return stats;
  }

  void BeginDrain() override {
    draining_ = true;
    jobs_.BeginDrain();
    for (const auto& session : Sessions()) {
      if (!session->finished()) session->Stop("DRAINED", "the server is draining");
    }
  }
  bool draining() const override { return draining_; }
  bool Idle() override {
    const auto sessions = Sessions();
    return committer_.Pending() == 0 && deriver_.Pending() == 0 && spiller_->Pending() == 0 && jobs_.Idle() &&
           std::all_of(sessions.begin(), sessions.end(), [](const auto& s) { return s->finished(); });
  }

 private:
  static size_t At(int device) { return static_cast<size_t>(device); }

  ScanStatus StatusOf(ScanSession& session) {
    ScanStatus status = session.Status();
    if (status.state == ScanState::kQueued) status.queue_position = queues_.PositionOf(status.spec.queue.name, status.name);
    return status;
  }

  absl::StatusOr<std::shared_ptr<ScanSession>> Find(const std::string& name) {
    MutexLock lock(mutex_);
    auto it = sessions_.find(name);
    if (it == sessions_.end()) {
      return WithInfo(absl::NotFoundError(absl::StrCat("no scan ", name)), {.reason = "NO_SCAN", .field = "name", .numbers = {}});
    }
    return it->second;
  }

  std::vector<std::shared_ptr<ScanSession>> Sessions() {
    MutexLock lock(mutex_);
    std::vector<std::shared_ptr<ScanSession>> list;
    for (const auto& [name, session] : sessions_) list.push_back(session);
    return list;
  }

  static int64_t BytesOf(const std::vector<AdmissionReport::Item>& needs) {
    int64_t bytes = 0;
    for (const auto& need : needs) bytes += need.bytes;
    return bytes;
  }

  /// The devices that a scan would run on now, home first.
  absl::StatusOr<std::vector<int>> DevicesFor(const ResolvedScan& scan) {
    std::vector<DeviceLoad> loads;
    const auto sessions = Sessions();
    for (size_t d = 0; d < devices_.size(); ++d) {
      DeviceLoad load{.health = devices_[d]->Health(), .free_bytes = ledger_.UseOf(static_cast<int>(d)).free()};
      for (const auto& session : sessions) {
        if (session->finished() || !session->Uses(static_cast<int>(d))) continue;
        ++(session->Status().state == ScanState::kQueued ? load.waiting : load.running);
      }
      loads.push_back(std::move(load));
    }
    DeviceWish wish{.device = scan.spec.device, .spread = scan.spec.spread};
    for (const auto& device : devices_) {  // what one needs, they all need
      if (!device->Health().ok()) continue;
      wish.home_bytes = BytesOf(ScanSession::Needs(scan, *device));
      wish.peer_bytes = BytesOf(ScanSession::PeerNeeds(scan, *device));
      break;
    }
    return ChooseDevices(wish, loads);
  }

  // Devices that were lost since the last look: their scans end, whoever watches is told.
  void LookAtDevices() {
    for (size_t d = 0; d < devices_.size(); ++d) {
      const absl::Status health = devices_[d]->Health();
      if (health.ok() || !device_watch_.Lost(static_cast<int>(d))) continue;
      Log(LogLevel::kError, "device lost", {{"device", DeviceName(static_cast<int>(d))}, {"reason", std::string(health.message())}});
      device_watch_.Tell(ListDevices());
      for (const auto& session : Sessions()) {
        if (session->Uses(static_cast<int>(d))) session->DeviceLost();
      }
    }
  }

  absl::StatusOr<std::shared_ptr<ScanSession>> Admit(const ScanSpec& spec, AdmissionReport* report) {
    OCTAVO_ASSIGN_OR_RETURN(ResolvedScan scan, ResolveScan(spec, config_.replay_roots));
    OCTAVO_RETURN_IF_ERROR(CheckAutoCommit(scan, storage_->roots()));
    OCTAVO_RETURN_IF_ERROR(CheckChains(scan));
    OCTAVO_RETURN_IF_ERROR(CheckSpill(scan.spec.retention));
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<int> chosen, DevicesFor(scan));
    const int index = chosen[0];
    OCTAVO_ASSIGN_OR_RETURN(auto source, OpenSource(scan.spec, config_.replay_roots, clock_));
    Device& device = *devices_[At(index)];
    const std::string name = absl::StrCat("scans/", NewId(config_.server_id));
    AdmissionReport admission;
    // Slots of the same layout that an ended scan left are taken over.
    auto grant = ledger_.ReserveReusing(index, name, spec.title, ScanSession::Needs(scan, device),
                                        slot_cache_.Find(ScanSession::LayoutOf(scan, index)), &admission);
    AddRunFigures(scan, storage_->roots(), SpillFree(scan), &admission);
    if (report != nullptr) *report = admission;
    if (!grant.ok()) return grant.status();
    OCTAVO_ASSIGN_OR_RETURN(std::vector<SessionPeer> peers, ReservePeers(scan, name, chosen, grant->charges, report));
    scan.spec.device = DeviceName(index);
    scan.spec.spread = {.given = !peers.empty()};
    for (size_t i = 0; !peers.empty() && i < chosen.size(); ++i) scan.spec.spread.devices.push_back(DeviceName(chosen[i]));
    SessionContext context{.device = &device,
                           .device_index = index,
                           .peers = std::move(peers),
                           .ledger = &ledger_,
                           .store = &volumes_,
                           .publisher = &publisher_,
                           .frames = frames_[At(index)],
                           .clock = clock_,
                           .server_id = config_.server_id,
                           .auto_commit = [this](const std::string& volume, const CommitOptions& options) { AutoCommit(volume, options); },
                           .commits_pending = [this](const std::string& s) { return committer_.PendingOf(s); },
                           .slot_cache = &slot_cache_,
                           .spill = [this](const std::string& s, Tier tier) { return spiller_->Request(s, tier); },
                           .spill_failures = [this](const std::string& s) { return spiller_->FailuresOf(s); },
                           .changed = [this] { watches_.Wake(); },
                           .acquired = [this, queue = scan.spec.queue.name, name] { queues_.Acquired(queue, name); }};
    const QueueOptions queue = scan.spec.queue;
    auto created = ScanSession::Create(name, std::move(scan), std::move(source), std::move(grant->charges), std::move(context));
    if (!created.ok()) {
      MutexLock lock(mutex_);
      ++past_.allocation_failures[DeviceName(index)];
      return Annotate(created.status(), absl::StrCat("while allocating for the scan on ", DeviceName(index)));
    }
    std::shared_ptr<ScanSession> session = *std::move(created);
    {
      MutexLock lock(mutex_);
      sessions_[name] = session;
      order_.push_back(name);
      ForgetOldScans();
    }
    queues_.Add(session, queue);
    if (draining_) session->Stop("DRAINED", "the server is draining");  // it may have begun since this scan was let in
    return session;
  }

  // What a spread scan needs on its further devices; all of them or nothing, what the home device was charged included.
  absl::StatusOr<std::vector<SessionPeer>> ReservePeers(const ResolvedScan& scan, const std::string& name, const std::vector<int>& chosen,
                                                        const std::vector<Ledger::ChargeId>& home, AdmissionReport* report) {
    std::vector<SessionPeer> peers;
    for (size_t i = 1; i < chosen.size(); ++i) {
      Device& device = *devices_[At(chosen[i])];
      AdmissionReport of_peer;
      auto charges = ledger_.Reserve(chosen[i], name, scan.spec.title, ScanSession::PeerNeeds(scan, device), &of_peer);
      if (!charges.ok()) {
        for (const auto id : home) {
          (void)slot_cache_.Take(id);  // freed: it was to be used by this scan
          ledger_.Release(id);
        }
        for (const SessionPeer& peer : peers) {
          for (const auto id : peer.charges) ledger_.Release(id);
        }
        if (report != nullptr) *report = std::move(of_peer);
        return charges.status();
      }
      peers.push_back({.device = &device, .index = chosen[i], .charges = *std::move(charges)});
    }
    return peers;
  }

  /// A scan that wants a tier must not find out in its middle that there is none.
  absl::Status CheckSpill(const Retention& retention) {
    const auto check = [&](const char* field, bool wanted, Tier tier) {
      if (!wanted) return absl::OkStatus();
      const absl::Status status = spiller_->CheckTier(tier);
      return status.ok() ? status
                         : WithInfo(absl::FailedPreconditionError(absl::StrCat(field, ": ", status.message())),
                                    {.reason = InfoOf(status).reason, .field = field, .numbers = InfoOf(status).numbers});
    };
    OCTAVO_RETURN_IF_ERROR(check("retention.on_full", Spills(retention.on_full), TierOf(retention.on_full)));
    return check("retention.orphan", retention.orphan == Orphan::kSpillDisk, Tier::kDisk);
  }
  int64_t SpillFree(const ResolvedScan& scan) {
    const OnFull on_full = scan.spec.retention.on_full;
    return Spills(on_full) ? spiller_->FreeOf(TierOf(on_full)) : 0;
  }

  VolumeStatus WithLeases(VolumeStatus volume) {
    volume.shared_leases = leases_.CountOf(volume.name).shared;
    return volume;
  }
  std::vector<SessionStatus> WithHoldings(std::vector<SessionStatus> sessions) {
    const MemoryStatus memory = GetMemory();
    const auto volumes = volumes_.List();
    const auto leases = leases_.List();
    for (SessionStatus& session : sessions) {
      session.volumes = std::count_if(volumes.begin(), volumes.end(), [&](const VolumeStatus& v) {
        return v.session == session.name &&
               (v.state == VolumeState::kHeld || v.state == VolumeState::kCommitting || v.state == VolumeState::kAcquiring);
      });
      session.leases = std::count_if(leases.begin(), leases.end(), [&](const Lease& lease) { return lease.session == session.name; });
      for (const auto& holder : memory.holders) {
        if (holder.session == session.name) session.bytes += holder.what.bytes;
      }
    }
    return sessions;
  }

  void TellExpiring(const VolumeStatus& volume) {
    const std::string text = absl::StrFormat("volume EXPIRING in %.0f s", volume.expires_seconds);
    Log(LogLevel::kInfo, "volume will expire", {{"volume", volume.name}, {"seconds", volume.expires_seconds}});
    ScanEvent event{.kind = EventKind::kExpiring, .text = text, .volume_index = volume.index, .time = clock_->Now()};
    if (const auto session = Find(volume.scan); session.ok()) (*session)->Note(event);
    PublishEvent(volume, std::move(event));
  }

  /// A held volume whose client is gone.
  void TakeCareOf(const VolumeStatus& volume) {
    const Retention retention = volume.origin == nullptr ? Retention{} : volume.origin->spec.retention;
    switch (retention.orphan) {
      case Orphan::kSpillDisk:
        spiller_->Spill(volume.name, Tier::kDisk, [](const absl::StatusOr<VolumeStatus>&) {});  // a failure is logged; the volume stays held
        break;
      case Orphan::kCommitDefault: {
        CommitOptions options = retention.auto_commit;
        if (options.destination.empty()) options.destination = "orphaned/{scan}_{index:05}";
        AutoCommit(volume.name, options);
        break;
      }
      case Orphan::kDiscard: (void)volumes_.Discard(volume.name, absl::StrCat("its client's ", volume.session, " has ended")); break;
      default: break;
    }
    Log(LogLevel::kInfo, "volume orphaned", {{"volume", volume.name}, {"session", volume.session}, {"policy", static_cast<int>(retention.orphan)}});
  }

  // Ended scans stay listed, the oldest go when there are very many; what they counted is kept.
  void ForgetOldScans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto it = order_.begin(); order_.size() > kEndedScansKept && it != order_.end();) {
      auto session = sessions_.find(*it);
      if (session != sessions_.end() && session->second->finished() && volumes_.CountOf(*it).in_memory.empty()) {
        AddSession(*session->second, session->second->Status(), &past_);
        sessions_.erase(session);
        it = order_.erase(it);
      } else {
        ++it;
      }
    }
  }

  static void AddSession(ScanSession& session, const ScanStatus& scan, Stats* stats) {
    if (IsFinal(scan.state)) ++stats->scans_finished[scan.reason_code];
    stats->records += scan.records;
    stats->source_records_lost["gap"] += scan.source.lost_records;
    stats->source_records_lost["duplicate"] += scan.source.duplicate_records;
    stats->source_records_lost["out_of_range"] += scan.source.out_of_range_records;
    stats->camera_frames_lost["lost"] += scan.source.frames_lost;
    stats->camera_frames_lost["broken"] += scan.source.frames_broken;
    stats->blocks_dropped["overrun"] += scan.blocks_dropped;
    stats->records_without_place["duplicate"] += scan.duplicate_records;
    stats->records_without_place["out_of_range"] += scan.out_of_range_records;
    stats->source_overruns += scan.blocks_dropped + (scan.reason_code == "SOURCE_OVERRUN");
    stats->volumes_finished["dropped"] += scan.volumes_dropped;
    stats->missing_ascans += scan.missing_ascans;
    const auto timings = session.TimingsNow();
    for (const auto& [stage, histogram] : timings.stages) stats->stage_seconds[stage].Merge(histogram);
    stats->volume_latency_seconds.Merge(timings.volume_latency);
  }

  static void AddStats(const Stats& from, Stats* to) {
    for (const auto& [key, n] : from.scans_finished) to->scans_finished[key] += n;
    for (const auto& [key, n] : from.blocks_dropped) to->blocks_dropped[key] += n;
    for (const auto& [key, n] : from.source_records_lost) to->source_records_lost[key] += n;
    for (const auto& [key, n] : from.camera_frames_lost) to->camera_frames_lost[key] += n;
    for (const auto& [key, n] : from.records_without_place) to->records_without_place[key] += n;
    for (const auto& [key, n] : from.volumes_finished) to->volumes_finished[key] += n;
    for (const auto& [key, n] : from.allocation_failures) to->allocation_failures[key] += n;
    for (const auto& [key, h] : from.stage_seconds) to->stage_seconds[key].Merge(h);
    to->volume_latency_seconds.Merge(from.volume_latency_seconds);
    to->records += from.records;
    to->source_overruns += from.source_overruns;
    to->missing_ascans += from.missing_ascans;
  }

  void AutoCommit(const std::string& volume, const CommitOptions& options) {
    const auto handle = committer_.Commit(volume, options, "", {});
    if (!handle.ok()) {
      Log(LogLevel::kError, "automatic commit not possible; the volume stays held",
          {{"volume", volume}, {"error", std::string(handle.status().message())}});
    }
  }

  storage::VolumeMeta Meta(const VolumeStatus& volume) {
    if (volume.recovered_meta != nullptr) return *volume.recovered_meta;
    std::string model;
    for (const auto& device : devices_) {
      if (DeviceName(device->info().index) == volume.device) model = device->info().model;
    }
    return MetaOf(volume, config_.software, model);
  }

  /// What the scan wants made of each of its volumes: planned here, computed beside the scan.
  void MakeChains(const VolumeStatus& volume) {
    if (volume.origin == nullptr || volume.origin->spec.chains == nullptr || !volume.derived_from.empty() || volume.is_raw) return;
    {
      MutexLock lock(chained_mutex_);
      if (volume.state != VolumeState::kHeld && volume.state != VolumeState::kCommitting) {
        chained_.erase(volume.name);
        return;
      }
      if (!chained_.insert(volume.name).second) return;  // held again, after a commit or from another tier
    }
    for (const VolumeChain& chain : volume.origin->spec.chains->chains) {
      const auto skipped = [name = volume.name, chain = chain.name](const absl::Status& status) {
        if (!status.ok())
          Log(LogLevel::kWarning, "volume without its chain", {{"volume", name}, {"chain", chain}, {"error", std::string(status.message())}});
      };
      if (deriver_.Pending() >= kMostChainsWaiting) {
        skipped(absl::ResourceExhaustedError("too many wait already"));
        continue;
      }
      DeriveSpec spec{.name = volume.name, .chain = chain.name};
      spec.operations.assign(chain.operations.begin(), chain.operations.end());
      skipped(deriver_.Derive(spec, [skipped](const absl::StatusOr<VolumeStatus>& made) { skipped(made.status()); }));
    }
  }

  /// Chains are checked before the scan starts, on what its volumes will be like.
  absl::Status CheckChains(const ResolvedScan& scan) const {
    if (scan.spec.chains == nullptr) return absl::OkStatus();
    for (size_t c = 0; c < scan.spec.chains->chains.size(); ++c) {
      VolumeStatus volume;
      std::copy(scan.shape, scan.shape + 3, volume.shape);
      std::copy(scan.spacing_um, scan.spacing_um + 3, volume.spacing_um);
      volume.dtype = scan.chain.output;
      const auto& operations = scan.spec.chains->chains[c].operations;
      for (size_t i = 0; i < operations.size(); ++i) {
        OCTAVO_RETURN_IF_ERROR(PlanVolumeOperation(operations[i], absl::StrCat("chains[", c, "].operations[", i, "]"), &volume).status());
      }
    }
    return absl::OkStatus();
  }

  void PublishVolumeEvent(const VolumeStatus& volume) {
    const bool elsewhere = volume.state == VolumeState::kHeld && volume.tier != Tier::kDevice;
    PublishEvent(volume, {.kind = volume.state == VolumeState::kAcquiring            ? EventKind::kVolumeStarted
                                  : volume.state == VolumeState::kHeld && !elsewhere ? EventKind::kVolumeDone
                                                                                     : EventKind::kVolumeState,
                          .text = absl::StrCat("volume ", Name(volume.state), elsewhere ? ", tier " : "", elsewhere ? Name(volume.tier) : ""),
                          .volume_index = volume.index,
                          .time = clock_->Now()});
  }
  void PublishEvent(const VolumeStatus& volume, ScanEvent what) {
    Frame event;
    event.scan = volume.scan;
    event.volume = volume.name;
    event.volume_index = volume.index;
    event.product = Product::kEvent;
    event.acquired = what.time;
    event.event = std::move(what);
    publisher_.Publish({.product = Product::kEvent}, std::move(event));
  }

  void LoadVolumeFrame(const FramePtr& header, std::function<void(FramePtr)> done) {
    workers_.Post([this, header, done = std::move(done)] {
      auto pinned = volumes_.PinAnyTier(header->volume);
      if (!pinned.ok()) return done(nullptr);
      const size_t d = At(pinned->device);
      auto payload = CopyVolumeToHost(*devices_[d], read_streams_[d].ref(), *frames_[d], *pinned);
      if (!payload.ok()) return done(nullptr);
      auto frame = std::make_shared<Frame>(*header);
      frame->payload = *std::move(payload);
      done(std::move(frame));
    });
  }

  const EngineConfig config_;
  const Clock* const clock_;
  storage::CommitStore* const storage_;
  // Declared so that what uses a thing is destroyed before it.
  const std::vector<std::unique_ptr<Device>> devices_;
  const std::vector<Stream> read_streams_;
  std::vector<std::shared_ptr<FramePool>> frames_;
  std::atomic<bool> ready_{false};  // all members are there
  DeviceWatch device_watch_;
  Ledger ledger_;
  SlotCache slot_cache_;  // before the volumes: their slots go there
  LeaseTable leases_;
  ClientSessions sessions_of_clients_;
  VolumeWaits volume_waits_;
  Mutex chained_mutex_;
  std::set<std::string> chained_ ABSL_GUARDED_BY(chained_mutex_);  // volumes whose chains are made or under way
  std::unique_ptr<BufferStore> buffers_;
  Publisher publisher_;
  VolumeStore volumes_;
  std::unique_ptr<Spiller> spiller_;  // set in the constructor
  Deriver deriver_;
  WorkerPool workers_;
  Committer committer_;
  JobQueue jobs_;
  JobWatches job_watches_;
  ScanWatches watches_;

  std::atomic<bool> draining_{false}, measuring_{false};
  std::atomic<int64_t> scans_admitted_{0};
  Mutex job_submit_mutex_;
  Mutex submit_mutex_;
  std::map<std::string, std::pair<std::string, std::string>> requests_ ABSL_GUARDED_BY(submit_mutex_);  // id → digest, scan
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<ScanSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<std::string, int64_t> rejected_ ABSL_GUARDED_BY(mutex_);
  Stats past_ ABSL_GUARDED_BY(mutex_);  // of scans no longer listed
  ScanQueues queues_;
  Mutex housekeeping_mutex_;
  Mutex keeper_mutex_;
  CondVar keeper_cv_;
  bool keeper_end_ ABSL_GUARDED_BY(keeper_mutex_) = false;
  std::jthread keeper_;  // last: it uses the rest
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
                                                       storage::CommitStore* store) {
  std::vector<int64_t> budgets;
  std::vector<Stream> streams;
  for (const auto& device : devices) {
    OCTAVO_ASSIGN_OR_RETURN(const DeviceMemory memory, device->Memory());
    const int64_t budget =
        config.memory_bytes > 0 ? config.memory_bytes : static_cast<int64_t>(static_cast<double>(memory.free_bytes) * config.memory_fraction);
    if (budget > memory.free_bytes || budget <= 0) {
      return absl::FailedPreconditionError(absl::StrCat("memory budget of ", DeviceName(device->info().index), " is ", budget, " bytes, but only ",
                                                        memory.free_bytes, " of ", memory.total_bytes, " are free"));
    }
    budgets.push_back(budget);
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
    streams.push_back(std::move(stream));
  }
  return std::make_unique<EngineImpl>(std::move(config), std::move(devices), std::move(budgets), std::move(streams), store);
}

}  // namespace octavo::engine
