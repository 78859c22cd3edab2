#include "server/engine/volumes.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/engine/internal.h"

namespace octavo::engine {

absl::StatusOr<model::VolumeStatus> Volumes::Get(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(model::VolumeStatus volume, components_.volumes.Get(name));
  return WithLeases(std::move(volume));
}

std::vector<model::VolumeStatus> Volumes::List(const volume::VolumeQuery& query) {
  std::vector<model::VolumeStatus> list = components_.volumes.List(query);
  std::map<std::string, int64_t> shared;
  for (const session::Lease& lease : components_.leases.List()) ++shared[lease.resource];
  for (model::VolumeStatus& volume : list) {
    if (const auto it = shared.find(volume.name); it != shared.end())
      volume.shared_leases = it->second;
  }
  return list;
}

absl::StatusOr<std::shared_ptr<volume::VolumeReader>> Volumes::Read(
    const std::string& name, const std::vector<int64_t>& start, const std::vector<int64_t>& count) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold hold,
                          components_.volumes.Hold(name, volume::HoldKind::kRead));
  if (hold.slot != nullptr) {
    OCTAVO_RETURN_IF_ERROR(CheckDevice(name, "in", hold.device));
    for (const memory::VolumeStripe& stripe : hold.slot->stripes)
      OCTAVO_RETURN_IF_ERROR(CheckDevice(name, "partly in", stripe.device));
  }
  const int d = hold.device;
  return volume::MakeVolumeReader(std::move(hold), start, count, &components_.devices.device(d),
                                  components_.read_streams[static_cast<size_t>(d)].ref(),
                                  components_.devices.frames(d), &components_.workers);
}

absl::StatusOr<model::VolumeStatus> Volumes::Hold(const std::string& name, bool release,
                                                  const std::string& lease_token) {
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, components_.volumes.Get(name));
  const model::Retention retention =
      volume.origin == nullptr ? model::Retention{} : volume.origin->spec.retention;
  const bool live = retention.mode == model::RetentionMode::kLive;
  if (release) {
    const volume::ClientVerb asked{.lease_token = lease_token};
    return components_.volumes.ring().Unmark(name, live ? &asked : nullptr);
  }
  const int64_t limit = retention.hold_slots;
  auto held = components_.volumes.ring().Mark(name, limit);
  // The next mark shall find room.
  if (live && model::Spills(retention.on_full) &&
      components_.volumes.CountOf(volume.scan).kept_slots >= limit) {
    components_.spiller.Request(volume.scan, model::TierOf(retention.on_full));
  }
  if (!held.ok()) return held.status();
  return WithLeases(*std::move(held));
}

void Volumes::Spill(const std::string& name, model::Tier tier, Done done,
                    const std::string& lease_token) {
  const volume::ClientVerb asked{.lease_token = lease_token};
  components_.spiller.Spill(name, tier, std::move(done), &asked);
}

void Volumes::Restore(const std::string& name, Done done) {
  components_.spiller.Restore(name, std::move(done));
}

absl::StatusOr<model::VolumeStatus> Volumes::Discard(const std::string& name, bool detach_exports,
                                                     const std::string& lease_token) {
  const volume::ClientVerb asked{.lease_token = lease_token, .detach_exports = detach_exports};
  absl::StatusOr<model::VolumeStatus> discarded =
      components_.volumes.Discard(name, "discarded by a client", &asked);
  if (discarded.ok()) return discarded;
  // A client that repeats the call because it lost the answer has what it wants.
  absl::StatusOr<model::VolumeStatus> now = components_.volumes.Get(name);
  return now.ok() && now->state == model::VolumeState::kDiscarded ? now : discarded;
}

absl::Status Volumes::Derive(const derive::DeriveSpec& spec, Done done) {
  OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
  return components_.deriver.Derive(spec, std::move(done));
}

absl::Status Volumes::Wait(const std::string& name, Done done, std::function<bool()> over) {
  return components_.waiters.Add(
      name, [this](const std::string& n) { return components_.volumes.Get(n); }, std::move(done),
      std::move(over));
}

absl::StatusOr<std::shared_ptr<base::Handle>> Volumes::Commit(const std::string& name,
                                                              const model::CommitOptions& options,
                                                              const std::string& request_id,
                                                              volume::CommitCallbacks callbacks,
                                                              const std::string& lease_token) {
  const volume::ClientVerb asked{.lease_token = lease_token};
  return components_.committer.Commit(name, options, request_id, std::move(callbacks), &asked);
}

model::VolumeStatus Volumes::WithLeases(model::VolumeStatus volume) {
  volume.shared_leases = components_.leases.CountOf(volume.name).shared;
  return volume;
}

absl::Status Volumes::CheckCommit(const model::CommitOptions& options) {
  return components_.committer.Check(options);
}

absl::Status Volumes::CheckDevice(const std::string& name, const char* where, int device) {
  const absl::Status health = components_.devices.device(device).Health();
  if (health.ok()) return health;
  return WithInfo(absl::DataLossError(absl::StrCat(name, " was ", where, " the memory of ",
                                                   base::DeviceName(device),
                                                   ", which is lost: ", health.message())),
                  {.reason = Reason::kLost,
                   .field = "name",
                   .numbers = {{"device", base::DeviceName(device)}}});
}

}  // namespace octavo::engine
