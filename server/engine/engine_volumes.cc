#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/base/resource_names.h"
#include "server/engine/engine_impl.h"
#include "server/memory/stripe_layout.h"
#include "server/model/volume_states.h"
#include "server/publish/plane_frame.h"
#include "server/scan/scan_session.h"
#include "server/volume/copy_volume.h"
#include "server/volume/volume_metadata.h"
#include "server/volume/volume_reader.h"

namespace octavo::engine {
namespace {

constexpr int64_t kMostChainsWaiting = 8;

}  // namespace

absl::StatusOr<model::VolumeStatus> EngineImpl::GetVolume(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(model::VolumeStatus volume, volumes_.Get(name));
  return WithLeases(std::move(volume));
}

std::vector<model::VolumeStatus> EngineImpl::ListVolumes(const volume::VolumeQuery& query) {
  std::vector<model::VolumeStatus> list = volumes_.List(query);
  std::map<std::string, int64_t> shared;
  for (const session::Lease& lease : leases_.List()) ++shared[lease.resource];
  for (model::VolumeStatus& volume : list) {
    if (const auto it = shared.find(volume.name); it != shared.end())
      volume.shared_leases = it->second;
  }
  return list;
}

absl::StatusOr<std::shared_ptr<volume::VolumeReader>> EngineImpl::ReadVolume(
    const std::string& name, const std::vector<int64_t>& start, const std::vector<int64_t>& count) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned, volumes_.Hold(name, volume::HoldKind::kRead));
  const size_t d = At(pinned.device);
  if (const absl::Status health = devices_[d]->Health(); pinned.slot != nullptr && !health.ok()) {
    return WithInfo(absl::DataLossError(absl::StrCat(name, " was in the memory of ",
                                                     base::DeviceName(pinned.device),
                                                     ", which is lost: ", health.message())),
                    {.reason = "LOST",
                     .field = "name",
                     .numbers = {{"device", base::DeviceName(pinned.device)}}});
  }
  for (size_t s = 0; pinned.slot != nullptr && s < pinned.slot->stripes.size(); ++s) {
    const int device = pinned.slot->stripes[s].device;
    if (const absl::Status health = devices_[At(device)]->Health(); !health.ok()) {
      return WithInfo(
          absl::DataLossError(absl::StrCat(name, " was partly in the memory of ",
                                           base::DeviceName(device),
                                           ", which is lost: ", health.message())),
          {.reason = "LOST", .field = "name", .numbers = {{"device", base::DeviceName(device)}}});
    }
  }
  return volume::MakeVolumeReader(std::move(pinned), start, count, devices_[d].get(),
                                  read_streams_[d].ref(), frames_[d], &workers_);
}

absl::StatusOr<model::VolumeStatus> EngineImpl::HoldVolume(const std::string& name, bool release,
                                                           const std::string& lease_token) {
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, volumes_.Get(name));
  const model::Retention retention =
      volume.origin == nullptr ? model::Retention{} : volume.origin->spec.retention;
  const bool live = retention.mode == model::RetentionMode::kLive;
  if (release) {
    const volume::ClientVerb asked{.lease_token = lease_token};
    return volumes_.ring().Unmark(name, live ? &asked : nullptr);
  }
  const int64_t limit = retention.hold_slots;
  auto held = volumes_.ring().Mark(name, limit);
  // The next mark shall find room.
  if (live && model::Spills(retention.on_full) &&
      volumes_.CountOf(volume.scan).kept_slots >= limit) {
    spiller_->Request(volume.scan, model::TierOf(retention.on_full));
  }
  if (!held.ok()) return held.status();
  return WithLeases(*std::move(held));
}

void EngineImpl::SpillVolume(const std::string& name, model::Tier tier,
                             std::function<void(absl::StatusOr<model::VolumeStatus>)> done,
                             const std::string& lease_token) {
  const volume::ClientVerb asked{.lease_token = lease_token};
  spiller_->Spill(name, tier, std::move(done), &asked);
}

void EngineImpl::RestoreVolume(const std::string& name,
                               std::function<void(absl::StatusOr<model::VolumeStatus>)> done) {
  spiller_->Restore(name, std::move(done));
}

absl::StatusOr<model::VolumeStatus> EngineImpl::DiscardVolume(const std::string& name,
                                                              bool detach_exports,
                                                              const std::string& lease_token) {
  const volume::ClientVerb asked{.lease_token = lease_token, .detach_exports = detach_exports};
  return volumes_.Discard(name, "discarded by a client", &asked);
}

absl::Status EngineImpl::DeriveVolume(
    const derive::DeriveSpec& spec, std::function<void(absl::StatusOr<model::VolumeStatus>)> done) {
  if (draining_) return Draining();
  return deriver_.Derive(spec, std::move(done));
}

absl::Status EngineImpl::WaitVolume(const std::string& name,
                                    std::function<void(absl::StatusOr<model::VolumeStatus>)> done,
                                    std::function<bool()> over) {
  return volume_waits_.Add(
      name, [this](const std::string& n) { return volumes_.Get(n); }, std::move(done),
      std::move(over));
}

absl::StatusOr<std::shared_ptr<base::Handle>> EngineImpl::CommitVolume(
    const std::string& name, const model::CommitOptions& options, const std::string& request_id,
    volume::CommitCallbacks callbacks, const std::string& lease_token) {
  const volume::ClientVerb asked{.lease_token = lease_token};
  return committer_.Commit(name, options, request_id, std::move(callbacks), &asked);
}

absl::StatusOr<std::shared_ptr<model::Subscription>> EngineImpl::Subscribe(
    const model::SubscribeSpec& spec, std::function<void()> notify) {
  return publisher_.Subscribe(spec, std::move(notify));
}

model::VolumeStatus EngineImpl::WithLeases(model::VolumeStatus volume) {
  volume.shared_leases = leases_.CountOf(volume.name).shared;
  return volume;
}

absl::Status EngineImpl::AutoCommit(const std::string& volume, const model::CommitOptions& options,
                                    const volume::ClientVerb* asked) {
  volume::CommitCallbacks callbacks;
  callbacks.on_done = [this, volume](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    if (!outcome.ok()) WarnOfCommit(volume, outcome.status());
  };
  const auto handle = committer_.Commit(volume, options, "", std::move(callbacks), asked);
  if (!handle.ok()) {
    Log(LogLevel::kError, "automatic commit not possible; the volume stays held",
        {{"volume", volume}, {"error", std::string(handle.status().message())}});
    WarnOfCommit(volume, handle.status());
  }
  return handle.status();
}

void EngineImpl::WarnOfCommit(const std::string& volume, const absl::Status& status) {
  const auto held = volumes_.Get(volume);
  // A client that was faster has committed it, or does not want it.
  if (!held.ok() || held->state != model::VolumeState::kHeld) return;
  if (const auto session = Find(held->scan); session.ok()) {
    (*session)->WarnOfCommit(absl::StrCat(
        volume, " could not be committed automatically and stays held: ", status.message()));
  }
}

storage::VolumeMeta EngineImpl::Meta(const model::VolumeStatus& volume) {
  if (volume.recovered) return *volume.recovered_meta;
  std::string model;
  for (const auto& device : devices_) {
    if (base::DeviceName(device->info().index) == volume.device) model = device->info().model;
  }
  storage::VolumeMeta meta = volume::MetaOf(volume, config_.software, model);
  const auto add = [&meta](const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings) {
      if (std::ssize(meta.warnings) == storage::kMostWarnings) return;
      if (std::find(meta.warnings.begin(), meta.warnings.end(), warning) == meta.warnings.end())
        meta.warnings.push_back(warning);
    }
  };
  if (const auto session = Find(volume.scan); session.ok()) {
    add((*session)->WarningsOfData());
  } else if (volume.origin != nullptr) {
    add(volume.origin->warnings);
  }
  add(volume.job_warnings);
  return meta;
}

void EngineImpl::MakeChains(const model::VolumeStatus& volume) {
  if (volume.origin == nullptr || volume.origin->spec.chains == nullptr ||
      !volume.derived_from.empty() || volume.is_raw)
    return;
  {
    MutexLock lock(chained_mutex_);
    if (!model::IsComplete(volume.state)) {
      chained_.erase(volume.name);
      return;
    }
    if (!chained_.insert(volume.name).second)
      return;  // held again, after a commit or from another tier
  }
  const auto session = Find(volume.scan);
  const std::shared_ptr<processing::ChainState> memory =
      session.ok() ? (*session)->chain_memory() : nullptr;
  for (const model::DerivedVolumeRecipe& chain : volume.origin->spec.chains->chains) {
    const auto skipped = [name = volume.name, chain = chain.name](const absl::Status& status) {
      if (!status.ok())
        Log(LogLevel::kWarning, "volume without its chain",
            {{"volume", name}, {"chain", chain}, {"error", std::string(status.message())}});
    };
    if (memory == nullptr && deriver_.Pending() >= kMostChainsWaiting) {
      skipped(absl::ResourceExhaustedError("too many wait already"));
      continue;
    }
    derive::DeriveSpec spec{.name = volume.name, .chain = chain.name, .memory = memory};
    spec.operations.assign(chain.operations.begin(), chain.operations.end());
    skipped(deriver_.Derive(spec, [skipped](const absl::StatusOr<model::VolumeStatus>& made) {
      skipped(made.status());
    }));
  }
}

void EngineImpl::PublishVolumeEvent(const model::VolumeStatus& volume) {
  const bool elsewhere =
      volume.state == model::VolumeState::kHeld && volume.tier != model::Tier::kDevice;
  PublishEvent(
      volume,
      {.kind = volume.state == model::VolumeState::kAcquiring ? model::EventKind::kVolumeStarted
               : volume.state == model::VolumeState::kHeld && !elsewhere
                   ? model::EventKind::kVolumeDone
                   : model::EventKind::kVolumeState,
       .text = absl::StrCat("volume ", Name(volume.state), elsewhere ? ", tier " : "",
                            elsewhere ? Name(volume.tier) : ""),
       .volume_index = volume.index,
       .time = clock_->Now()});
}

void EngineImpl::PublishEvent(const model::VolumeStatus& volume, model::ScanEvent what) {
  model::Frame event;
  event.scan = volume.scan;
  event.volume = volume.name;
  event.volume_index = volume.index;
  event.product = model::Product::kEvent;
  event.acquired = what.time;
  event.event = std::move(what);
  publisher_.Publish({.product = model::Product::kEvent}, std::move(event));
}

void EngineImpl::LoadFrame(const model::FramePtr& header,
                           std::function<void(absl::StatusOr<model::FramePtr>)> done) {
  workers_.Post([this, header, done = std::move(done)] {
    auto frame = base::ExceptionToStatus([&]() -> absl::StatusOr<model::FramePtr> {
      auto loaded = std::make_shared<model::Frame>(*header);
      OCTAVO_ASSIGN_OR_RETURN(loaded->payload, PayloadOf(*header));
      return loaded;
    });
    if (!frame.ok() && !absl::IsNotFound(frame.status()) &&
        !absl::IsFailedPrecondition(frame.status())) {
      Log(LogLevel::kWarning, "a frame of a held volume could not be made",
          {{"volume", header->volume}, {"error", frame.status().ToString()}});
    }
    done(std::move(frame));
  });
}

absl::StatusOr<model::Bytes> EngineImpl::PayloadOf(const model::Frame& header) {
  OCTAVO_ASSIGN_OR_RETURN(const volume::VolumeHold pinned,
                          volumes_.Hold(header.volume, volume::HoldKind::kRead));
  const size_t d = At(pinned.device);
  if (header.product == model::Product::kVolume)
    return volume::CopyVolumeToHost(*devices_[d], read_streams_[d].ref(), *frames_[d], pinned);
  const model::VolumeStatus& volume = pinned.status;
  const Box3 box = publish::PlaneBox(volume, header);
  const int64_t bytes = publish::BytesOf(header);
  const auto memory = frames_[d]->Get(bytes, memory::FramePool::Use::kFrame);
  if (memory == nullptr)
    return absl::ResourceExhaustedError("no page-locked memory left for frames");
  if (pinned.cursor != nullptr) {
    OCTAVO_RETURN_IF_ERROR(
        volume::ReadBox(*pinned.cursor, volume.shape, SizeOf(volume.dtype), box, memory.get()));
  } else {
    OCTAVO_RETURN_IF_ERROR(memory::CopyVolumeBox(*devices_[d], read_streams_[d].ref(), memory.get(),
                                                 *pinned.slot, volume, box));
    OCTAVO_RETURN_IF_ERROR(read_streams_[d].ref().Synchronize());
  }
  return model::Bytes{.owner = memory, .data = memory.get(), .size = bytes};
}

std::vector<model::VolumeStatus> EngineImpl::HeldOf(const std::string& name) {
  std::vector<model::VolumeStatus> held;
  if (absl::StartsWith(name, "jobs/")) {
    const auto job = jobs_.Get(name);
    if (!job.ok()) return held;
    for (const std::string& volume : job->volumes) {
      if (auto status = volumes_.Get(volume); status.ok()) held.push_back(*std::move(status));
    }
  } else {
    held = volumes_.List({.scan = name, .in_memory = true});
    std::erase_if(held, [](const model::VolumeStatus& volume) {
      return !volume.job.empty() || !volume.derived_from.empty();
    });
  }
  std::erase_if(held, [](const model::VolumeStatus& volume) {
    return !model::IsComplete(volume.state) || volume.is_raw;
  });
  return held;
}

}  // namespace octavo::engine
