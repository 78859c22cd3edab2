#include "server/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <pthread.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/memory_limit.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/engine/engine_impl.h"
#include "server/model/volume_states.h"

namespace octavo::engine {
namespace {

const SystemClock kSystemClock;

}  // namespace

absl::Status Draining() {
  return WithInfo(absl::UnavailableError(
                      "the server is draining and takes no new scans; try another one or later"),
                  {.reason = "DRAINING", .field = "", .numbers = {{"retryable", "true"}}});
}

namespace {

// What all who look at the volumes of a scan may keep of its slots at once.
int64_t SpareSlots(const model::VolumeStatus& volume) {
  if (volume.origin == nullptr) return std::numeric_limits<int64_t>::max();
  const model::Retention& retention = volume.origin->spec.retention;
  if (retention.mode == model::RetentionMode::kLive)
    return retention.hold_slots;  // those beside the ring's own
  // What is held stays where it is anyhow.
  if (retention.disposition == model::Disposition::kAsk && !model::Spills(retention.on_full))
    return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(1, scan::VolumeSlots(*volume.origin) - 2);
}

int64_t HalfOfMemory() { return ReadMemoryLimit().total_bytes / 2; }

}  // namespace

EngineImpl::EngineImpl(EngineConfig config, std::vector<std::unique_ptr<Device>> devices,
                       std::vector<int64_t> budgets, std::vector<Stream> read_streams,
                       storage::CommitStore* store)
    : config_(std::move(config)),
      clock_(config_.clock != nullptr ? config_.clock : &kSystemClock),
      storage_(store),
      devices_(std::move(devices)),
      read_streams_(std::move(read_streams)),
      ledger_(std::move(budgets)),
      slot_cache_(&ledger_, config_.slot_cache_bytes),
      leases_(clock_, config_.most_leases),
      sessions_of_clients_(clock_, config_.sessions, config_.server_id),
      publisher_(clock_, config_.frame_pool_bytes / 4),
      volumes_(&ledger_, clock_,
               [this](const model::VolumeStatus& volume) {
                 // First of all: who waits for the volume itself.
                 if (buffers_ != nullptr && volume.state == model::VolumeState::kHeld &&
                     volume.tier == model::Tier::kDevice)
                   buffers_->feeds().Offer(volume);
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
                .restore =
                    [this](const std::string& volume) {
                      return spiller_->RestoreNow(volume).status();
                    }}),
      workers_("oct-io", 4),
      committer_(
          {.storage = store,
           .volumes = &volumes_,
           .clock = clock_,
           .device_of = [this](int d) { return std::pair(devices_[At(d)].get(), frames_[At(d)]); },
           .meta_of = [this](const model::VolumeStatus& v) { return Meta(v); }},
          std::max(1, config_.commit_threads)),
      projection_memory_(config_.projection_bytes > 0 ? config_.projection_bytes : HalfOfMemory()),
      jobs_({.devices = static_cast<int>(devices_.size()),
             .device_of = [this](int d) { return devices_[At(d)].get(); },
             .frames_of = [this](int d) { return frames_[At(d)]; },
             .ledger = &ledger_,
             .volumes = &volumes_,
             .publisher = &publisher_,
             .clock = clock_,
             .server_id = config_.server_id,
             .spiller = [this] { return spiller_.get(); },
             .changed = [this] { job_watches_.Wake(); }}),
      job_watches_([this](const std::string& name) { return GetJob(name); },
                   [this] { jobs_.Tick(); }),
      watches_([this](const std::string& name) { return GetScan(name); },
               [this] {
                 publisher_.Tick();
                 if (ready_) PollDeviceHealth();
               }) {
  for (const auto& device : devices_)
    frames_.push_back(std::make_shared<memory::FramePool>(device.get(), config_.frame_pool_bytes));
  source::SetCameraInterfaces(config_.camera_interfaces);
  spiller_ = std::make_unique<volume::Spiller>(
      volume::Spiller::Context{
          .volumes = &volumes_,
          .ledger = &ledger_,
          .clock = clock_,
          .device_of = [this](int d) { return std::pair(devices_[At(d)].get(), frames_[At(d)]); },
          .folder = config_.spill_folder,
          .host_bytes = config_.spill_host_bytes,
          .devices = static_cast<int>(devices_.size()),
          .meta_of = [this](const model::VolumeStatus& v) { return Meta(v); }},
      std::max(1, config_.spill_threads));
  for (const std::string& line : spiller_->Recover(config_.spilled))
    Log(LogLevel::kWarning, "spilled volume found", {{"volume", line}});
  std::vector<Device*> raw;
  for (const auto& device : devices_) raw.push_back(device.get());
  buffers_ = std::make_unique<buffer::BufferStore>(buffer::BufferStore::Context{
      .devices = std::move(raw),
      .ledger = &ledger_,
      .volumes = &volumes_,
      .leases = &leases_,
      .clock = clock_,
      .workers = &workers_,
      .frames = frames_,
      .server_id = config_.server_id,
      .draining = [this] { return draining_.load(); },
      .quota_bytes = config_.buffer_quota_bytes,
      .scan_ended = [this](const std::string& scan) -> absl::StatusOr<bool> {
        OCTAVO_ASSIGN_OR_RETURN(const auto session, Find(scan));
        return session->finished();
      },
      .spare_slots = SpareSlots});
  leases_.SetGone(
      [this](const std::string& session) { return sessions_of_clients_.Gone(session); });
  volumes_.SetProtections(
      {.leases = &leases_,
       .mapped = [this] { return buffers_->exports().Mapped(); },
       .unmapped =
           [this](const std::string& volume) { return buffers_->exports().CheckFree(volume); },
       .left =
           [this](const std::string& volume, memory::Ledger::ChargeId charge) {
             if (buffers_ != nullptr) buffers_->exports().Left(volume, charge);
           }});
  publisher_.SetLoader([this](const model::FramePtr& header,
                              std::function<void(absl::StatusOr<model::FramePtr>)> done) {
    LoadFrame(header, std::move(done));
  });
  publisher_.SetHeld([this](const std::string& scan) { return HeldOf(scan); });
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

EngineImpl::~EngineImpl() {
  BeginDrain();
  {
    MutexLock lock(keeper_mutex_);
    keeper_end_ = true;
    keeper_.request_stop();
    keeper_cv_.NotifyAll();
  }
  keeper_.join();
  EndNow("the server ended");
  jobs_.Shutdown();
  job_watches_.Stop();
  watches_.Stop();
  // Their threads look for scans, with our lock, until they are through; and none of them may be
  // the last to let go of its session.
  for (const auto& session : Sessions()) session->WaitUntilFinished();
  MutexLock lock(mutex_);
  sessions_.clear();
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(EngineConfig config,
                                                       std::vector<std::unique_ptr<Device>> devices,
                                                       storage::CommitStore* store) {
  std::vector<int64_t> budgets;
  std::vector<Stream> streams;
  for (const auto& device : devices) {
    OCTAVO_ASSIGN_OR_RETURN(const DeviceMemory memory, device->Memory());
    const int64_t budget =
        config.memory_bytes > 0
            ? config.memory_bytes
            : static_cast<int64_t>(static_cast<double>(memory.free_bytes) * config.memory_fraction);
    if (budget > memory.free_bytes || budget <= 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "memory budget of ", base::DeviceName(device->info().index), " is ", budget,
          " bytes, but only ", memory.free_bytes, " of ", memory.total_bytes, " are free"));
    }
    budgets.push_back(budget);
    OCTAVO_ASSIGN_OR_RETURN(Stream stream, device->NewStream(StreamPriority::kLow));
    streams.push_back(std::move(stream));
  }
  return std::make_unique<EngineImpl>(std::move(config), std::move(devices), std::move(budgets),
                                      std::move(streams), store);
}

}  // namespace octavo::engine
