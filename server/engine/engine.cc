#include "server/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <pthread.h>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/engine/admission.h"
#include "server/engine/buffer_store.h"
#include "server/engine/committer.h"
#include "server/engine/names.h"
#include "server/engine/provenance.h"
#include "server/engine/publisher.h"
#include "server/engine/scan_queue.h"
#include "server/engine/scan_session.h"
#include "server/engine/scan_session_parts.h"
#include "server/engine/scan_watch.h"
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
        publisher_(clock_),
        volumes_(&ledger_, clock_, [this](const VolumeStatus& volume) {
          PublishVolumeEvent(volume);
          volume_waits_.Tell(volume);
          MakeChains(volume);
        }),
        deriver_({.device_of = [this](int d) { return devices_[At(d)].get(); },
                  .ledger = &ledger_,
                  .volumes = &volumes_,
                  .clock = clock_,
                  .workers = &workers_,
                  .server_id = config_.server_id}),
        workers_("oct-io", 4),
        committer_({.storage = store,
                    .volumes = &volumes_,
                    .clock = clock_,
                    .device_of = [this](int d) { return std::pair(devices_[At(d)].get(), frames_[At(d)]); },
                    .meta_of = [this](const VolumeStatus& v) { return Meta(v); }},
                   std::max(1, config_.commit_threads)),
        watches_([this](const std::string& name) { return GetScan(name); }, [this] { publisher_.Tick(); }) {
    for (const auto& device : devices_) frames_.push_back(std::make_shared<FramePool>(device.get(), config_.frame_pool_bytes));
    SetCameraInterfaces(config_.camera_interfaces);
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
  }

  ~EngineImpl() override {
    BeginDrain();
    for (const auto& session : Sessions()) session->Cancel();
    committer_.CancelAll();
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
    OCTAVO_ASSIGN_OR_RETURN(const int device, ChooseDevice(scan));
    AdmissionReport report = ledger_.Plan(device, ScanSession::Needs(scan, *devices_[At(device)]));
    AddRunFigures(scan, storage_->roots(), &report);
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

  absl::StatusOr<VolumeStatus> GetVolume(const std::string& name) override { return volumes_.Get(name); }
  std::vector<VolumeStatus> ListVolumes() override { return volumes_.List(); }

  absl::StatusOr<std::shared_ptr<VolumeReader>> ReadVolume(const std::string& name, const std::vector<int64_t>& start,
                                                           const std::vector<int64_t>& count) override {
    OCTAVO_ASSIGN_OR_RETURN(PinnedVolume pinned, volumes_.Pin(name));
    const size_t d = At(pinned.device);
    return MakeVolumeReader(std::move(pinned), start, count, devices_[d].get(), read_streams_[d].ref(), frames_[d], &workers_);
  }

  absl::StatusOr<VolumeStatus> HoldVolume(const std::string& name) override {
    OCTAVO_ASSIGN_OR_RETURN(const VolumeStatus volume, volumes_.Get(name));
    const int64_t limit = volume.origin == nullptr ? 0 : volume.origin->spec.retention.hold_slots;
    return volumes_.Keep(name, limit);
  }

  absl::StatusOr<VolumeStatus> DiscardVolume(const std::string& name) override { return volumes_.Discard(name, "discarded by a client"); }

  absl::Status DeriveVolume(const DeriveSpec& spec, std::function<void(absl::StatusOr<VolumeStatus>)> done) override {
    if (draining_) return Draining();
    return deriver_.Derive(spec, std::move(done));
  }

  absl::Status WaitVolume(const std::string& name, std::function<void(absl::StatusOr<VolumeStatus>)> done) override {
    return volume_waits_.Add(name, [this](const std::string& n) { return volumes_.Get(n); }, std::move(done));
  }

  BufferStore& buffers() override { return *buffers_; }

  absl::StatusOr<std::shared_ptr<Handle>> CommitVolume(const std::string& name, const CommitOptions& options, const std::string& request_id,
                                                       CommitCallbacks callbacks) override {
    return committer_.Commit(name, options, request_id, std::move(callbacks));
  }

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
      status.used_bytes = use.reserved + use.held;
      status.free_bytes = use.free();
      for (const auto& session : sessions) {
        const ScanStatus scan = session->Status();
        status.running_scans += !IsFinal(scan.state) && scan.device == status.name;
      }
      list.push_back(std::move(status));
    }
    return list;
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
    publisher_.AddTo(&stats);
    committer_.AddTo(&stats);
    stats.devices = ListDevices();
    return stats;
  }

  void BeginDrain() override {
    draining_ = true;
    for (const auto& session : Sessions()) {
      if (!session->finished()) session->Stop("DRAINED", "the server is draining");
    }
  }
  bool draining() const override { return draining_; }
  bool Idle() override {
    const auto sessions = Sessions();
    return committer_.Pending() == 0 && deriver_.Pending() == 0 &&
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

  absl::StatusOr<int> ChooseDevice(const ResolvedScan& scan) {
    const std::string& wanted = scan.spec.device;
    int best = -1;
    for (size_t d = 0; d < devices_.size(); ++d) {
      const int index = static_cast<int>(d);
      const bool named = wanted == DeviceName(index);
      if (!wanted.empty() && wanted != "auto" && !named) continue;
      if (absl::Status health = devices_[d]->Health(); !health.ok()) {
        if (!named) continue;
        return WithInfo(absl::UnavailableError(absl::StrCat(wanted, " is down: ", health.message())),
                        {.reason = "DEVICE_DOWN", .field = "device", .numbers = {}});
      }
      if (best < 0 || ledger_.UseOf(index).free() > ledger_.UseOf(best).free()) best = index;
    }
    if (best >= 0) return best;
    if (wanted.empty() || wanted == "auto") {
      return WithInfo(absl::UnavailableError("no device is healthy"), {.reason = "DEVICE_DOWN", .field = "device", .numbers = {}});
    }
    return InvalidField("device", absl::StrCat("is '", wanted, "'; allowed are auto, devices/0 to devices/", devices_.size() - 1));
  }

  absl::StatusOr<std::shared_ptr<ScanSession>> Admit(const ScanSpec& spec, AdmissionReport* report) {
    OCTAVO_ASSIGN_OR_RETURN(ResolvedScan scan, ResolveScan(spec, config_.replay_roots));
    OCTAVO_RETURN_IF_ERROR(CheckAutoCommit(scan, storage_->roots()));
    OCTAVO_RETURN_IF_ERROR(CheckChains(scan));
    OCTAVO_ASSIGN_OR_RETURN(const int index, ChooseDevice(scan));
    OCTAVO_ASSIGN_OR_RETURN(auto source, OpenSource(scan.spec, config_.replay_roots, clock_));
    Device& device = *devices_[At(index)];
    const std::string name = absl::StrCat("scans/", NewId(config_.server_id));
    AdmissionReport admission;
    auto charges = ledger_.Reserve(index, name, spec.title, ScanSession::Needs(scan, device), &admission);
    AddRunFigures(scan, storage_->roots(), &admission);
    if (report != nullptr) *report = admission;
    if (!charges.ok()) return charges.status();
    scan.spec.device = DeviceName(index);
    SessionContext context{.device = &device,
                           .device_index = index,
                           .ledger = &ledger_,
                           .store = &volumes_,
                           .publisher = &publisher_,
                           .frames = frames_[At(index)],
                           .clock = clock_,
                           .server_id = config_.server_id,
                           .auto_commit = [this](const std::string& volume, const CommitOptions& options) { AutoCommit(volume, options); },
                           .commits_pending = [this](const std::string& s) { return committer_.PendingOf(s); },
                           .changed = [this] { watches_.Wake(); },
                           .acquired = [this, queue = scan.spec.queue.name, name] { queues_.Acquired(queue, name); }};
    const QueueOptions queue = scan.spec.queue;
    auto created = ScanSession::Create(name, std::move(scan), std::move(source), *std::move(charges), std::move(context));
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
    std::string model;
    for (const auto& device : devices_) {
      if (DeviceName(device->info().index) == volume.device) model = device->info().model;
    }
    return MetaOf(volume, config_.software, model);
  }

  /// What the scan wants made of each of its volumes: planned here, computed beside the scan.
  void MakeChains(const VolumeStatus& volume) {
    const bool fresh = volume.state == VolumeState::kHeld && volume.derived_from.empty() && volume.last_error.empty();
    if (!fresh || volume.origin == nullptr || volume.origin->spec.chains == nullptr) return;
    for (const VolumeChain& chain : volume.origin->spec.chains->chains) {
      const auto skipped = [name = volume.name, chain = chain.name](const absl::Status& status) {
        if (!status.ok()) Log(LogLevel::kWarning, "volume without its chain", {{"volume", name}, {"chain", chain}, {"error", std::string(status.message())}});
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
    Frame event;
    event.scan = volume.scan;
    event.volume = volume.name;
    event.volume_index = volume.index;
    event.product = Product::kEvent;
    event.acquired = clock_->Now();
    event.event = {.kind = volume.state == VolumeState::kAcquiring ? EventKind::kVolumeStarted
                           : volume.state == VolumeState::kHeld    ? EventKind::kVolumeDone
                                                                   : EventKind::kVolumeState,
                   .text = absl::StrCat("volume ", Name(volume.state)),
                   .volume_index = volume.index,
                   .time = event.acquired};
    publisher_.Publish({.product = Product::kEvent}, std::move(event));
  }

  void LoadVolumeFrame(const FramePtr& header, std::function<void(FramePtr)> done) {
    workers_.Post([this, header, done = std::move(done)] {
      auto pinned = volumes_.Pin(header->volume);
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
  Ledger ledger_;
  LeaseTable leases_{clock_};
  VolumeWaits volume_waits_;
  std::unique_ptr<BufferStore> buffers_;
  Publisher publisher_;
  VolumeStore volumes_;
  Deriver deriver_;
  WorkerPool workers_;
  Committer committer_;
  ScanWatches watches_;

  std::atomic<bool> draining_{false};
  Mutex submit_mutex_;
  std::map<std::string, std::pair<std::string, std::string>> requests_ ABSL_GUARDED_BY(submit_mutex_);  // id → digest, scan
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<ScanSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<std::string, int64_t> rejected_ ABSL_GUARDED_BY(mutex_);
  Stats past_ ABSL_GUARDED_BY(mutex_);  // of scans no longer listed
  ScanQueues queues_;
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
