#include "server/engine/volumes.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/array/coarsen.h"
#include "gpu/base/status.h"
#include "server/base/resource_names.h"
#include "server/engine/history_rows.h"
#include "server/engine/internal.h"
#include "server/security/rights.h"
#include "server/volume/coarse_reader.h"

namespace octavo::engine {
namespace {

/// Of the volume's scan; the default for volumes whose scan is not known.
model::Retention RetentionOf(const model::VolumeStatus& volume) {
  return volume.origin == nullptr ? model::Retention{} : volume.origin->spec.retention;
}

/// While the server drains, nobody's lease or mapping keeps it (or an admin) from writing a volume:
/// with the server they end, and so does what is not written. Other callers need the right, as
/// always.
const volume::ClientVerb* UnlessDraining(const DrainState& drain, const volume::ClientVerb* asked) {
  return drain.draining() && asked->caller.role == security::Role::kAdmin ? nullptr : asked;
}

/// Ends the operation of a move.
volume::Spiller::Done Finishing(std::shared_ptr<operation::OperationRun> run) {
  return [run = std::move(run)](const absl::StatusOr<model::VolumeStatus>& volume) {
    run->Finish(volume.status());
  };
}

}  // namespace

absl::StatusOr<model::VolumeStatus> Volumes::Get(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(model::VolumeStatus volume, components_.volumes.Get(name));
  return WithLeases(std::move(volume));
}

std::vector<model::VolumeStatus> Volumes::List(const volume::VolumeQuery& query) {
  std::vector<model::VolumeStatus> list = components_.volumes.List(query);
  for (model::VolumeStatus& volume : list)
    volume.shared_leases = components_.leases.CountOf(volume.name).shared;
  return list;
}

std::shared_ptr<void> Volumes::Watch(volume::VolumeWatchers::Told told) {
  return components_.volume_watchers.Watch(std::move(told),
                                           [this] { return List({.in_memory = true}); });
}

absl::StatusOr<volume::VolumeHold> Volumes::HoldToRead(const std::string& name) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold hold,
                          components_.volumes.Hold(name, volume::HoldKind::kRead));
  if (hold.slot != nullptr) {
    OCTAVO_RETURN_IF_ERROR(CheckDevice(name, "in", hold.device));
    for (const memory::VolumeStripe& stripe : hold.slot->stripes)
      OCTAVO_RETURN_IF_ERROR(CheckDevice(name, "partly in", stripe.device));
  }
  return hold;
}

absl::StatusOr<Rendered> Volumes::Render(
    const model::RenderSpec& spec, const std::function<bool()>& unwanted,
    const std::function<absl::Status(const Rendered&)>& admit) {
  OCTAVO_ASSIGN_OR_RETURN(const volume::VolumeHold hold, HoldToRead(spec.volume));
  OCTAVO_ASSIGN_OR_RETURN(Rendered rendered, PlanRendering(WithLeases(hold.status), spec));
  OCTAVO_RETURN_IF_ERROR(admit(rendered));
  const int64_t bytes = rendered.projection.results() * SizeOf(rendered.frame.dtype);
  const std::shared_ptr<char[]> memory =
      std::make_shared_for_overwrite<char[]>(static_cast<size_t>(bytes));
  OCTAVO_RETURN_IF_ERROR(
      components_.projector.Project(hold, rendered.projection, unwanted, memory.get()));
  rendered.frame.payload = {.owner = memory, .data = memory.get(), .size = bytes};
  return rendered;
}

absl::StatusOr<std::shared_ptr<volume::VolumeReader>> Volumes::Read(const model::VolumeRead& read) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold hold, HoldToRead(read.volume));
  const int d = hold.device;
  Device* const device = &components_.devices.device(d);
  const StreamRef stream = components_.read_streams[static_cast<size_t>(d)].ref();
  if (!read.coarse()) {
    return volume::MakeVolumeReader(std::move(hold), read.start, read.count, device, stream,
                                    components_.devices.frames(d), &components_.workers);
  }
  if (hold.status.is_raw) {
    return InvalidField(read.downsample > 1 ? "downsample" : "window",
                        absl::StrCat("has no meaning for ", hold.status.name,
                                     ", which are raw spectra; a reprocess job makes a volume"));
  }
  Coarsening coarsening{.factor = read.downsample,
                        .kind = read.mean ? math::Reduction::kMean : math::Reduction::kMax};
  if (read.window.has_value())
    coarsening.window = {.lo = read.window->first, .hi = read.window->second};
  OCTAVO_ASSIGN_OR_RETURN(coarsening.box, volume::BoxOf(hold.status.shape, read.start, read.count));
  return volume::MakeCoarseReader(std::move(hold), coarsening, device, stream,
                                  components_.devices.frames(d), &components_.ledger,
                                  &components_.workers);
}

absl::StatusOr<model::VolumeStatus> Volumes::Hold(const std::string& name,
                                                  const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, components_.volumes.Get(name));
  const volume::ClientVerb asked{.caller = caller};
  OCTAVO_RETURN_IF_ERROR(volume::CheckOwner(volume, &asked));
  const model::Retention retention = RetentionOf(volume);
  const int64_t limit = retention.hold_slots;
  auto held = components_.volumes.ring().Mark(name, limit, &asked);
  // The next mark shall find room.
  if (retention.mode == model::RetentionMode::kLive && model::Spills(retention.on_full) &&
      components_.volumes.CountOf(volume.scan).kept_slots >= limit) {
    components_.spiller.Request(volume.scan, model::TierOf(retention.on_full));
  }
  if (!held.ok()) return held.status();
  return WithLeases(*std::move(held));
}

absl::StatusOr<model::VolumeStatus> Volumes::Release(const std::string& name,
                                                     const std::string& lease_token,
                                                     const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus volume, components_.volumes.Get(name));
  const bool live = RetentionOf(volume).mode == model::RetentionMode::kLive;
  const volume::ClientVerb asked{.lease_token = lease_token, .caller = caller};
  auto released = components_.volumes.ring().Unmark(name, &asked, /*endangers=*/live);
  if (!released.ok()) return released.status();
  return WithLeases(*std::move(released));
}

absl::StatusOr<std::string> Volumes::Spill(const std::string& name, model::Tier tier,
                                           const operation::RequestKey& request,
                                           const std::string& lease_token,
                                           const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(
      const auto operation,
      components_.operations.Begin(operation::OperationKind::kSpill, name, request));
  if (operation.run == nullptr) return operation.name;
  const volume::ClientVerb asked{.lease_token = lease_token, .caller = caller};
  OCTAVO_RETURN_IF_ERROR(components_.spiller.Spill(name, tier, operation.run->control(),
                                                   Finishing(operation.run),
                                                   UnlessDraining(components_.drain, &asked)));
  operation.run->Started();
  return operation.name;
}

absl::StatusOr<std::string> Volumes::Restore(const std::string& name,
                                             const operation::RequestKey& request,
                                             const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(
      const auto operation,
      components_.operations.Begin(operation::OperationKind::kRestore, name, request));
  if (operation.run == nullptr) return operation.name;
  // What is on the device when the server ends is lost.
  OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
  const volume::ClientVerb asked{.caller = caller};
  OCTAVO_RETURN_IF_ERROR(components_.spiller.Restore(name, operation.run->control(),
                                                     Finishing(operation.run), &asked));
  operation.run->Started();
  return operation.name;
}

absl::StatusOr<model::VolumeStatus> Volumes::Discard(const std::string& name, bool detach_exports,
                                                     const std::string& lease_token,
                                                     const security::Principal& caller) {
  const volume::ClientVerb asked{
      .lease_token = lease_token, .detach_exports = detach_exports, .caller = caller};
  absl::StatusOr<model::VolumeStatus> discarded =
      components_.volumes.Discard(name, Reason::kDiscarded, "discarded by a client", &asked);
  if (discarded.ok() || absl::IsPermissionDenied(discarded.status())) return discarded;
  // A client that repeats the call because it lost the answer has what it wants.
  absl::StatusOr<model::VolumeStatus> now = components_.volumes.Get(name);
  return now.ok() && now->state == model::VolumeState::kDiscarded ? now : discarded;
}

void Volumes::Derive(const derive::DeriveSpec& spec, const operation::RequestKey& request,
                     std::function<void(absl::StatusOr<std::string>)> begun) {
  const auto operation =
      components_.operations.Begin(operation::OperationKind::kDerive, spec.name, request);
  if (!operation.ok()) return begun(operation.status());
  if (operation->run == nullptr) return begun(operation->name);
  const std::shared_ptr<operation::OperationRun> run = operation->run;
  if (const absl::Status draining = components_.drain.Check(); !draining.ok()) {
    run->Refuse();
    return begun(draining);
  }
  const auto started = std::make_shared<bool>(false);
  const auto planned = [run, started, begun](const model::VolumeStatus& volume) {
    run->Started({volume.name});
    *started = true;
    begun(run->name());
  };
  const auto done = [run, started, begun](const absl::StatusOr<model::VolumeStatus>& volume) {
    if (*started) return run->Finish(volume.status());
    run->Refuse();
    begun(volume.status());
  };
  components_.deriver.Derive(spec, run->control(), planned, done);
}

absl::Status Volumes::Wait(const std::string& name, Done done, std::function<bool()> over) {
  return components_.waiters.Add(
      name, [this](const std::string& n) { return components_.volumes.Get(n); }, std::move(done),
      std::move(over));
}

absl::StatusOr<std::string> Volumes::Commit(const std::string& name,
                                            const model::CommitOptions& options,
                                            const operation::RequestKey& request,
                                            const std::string& lease_token,
                                            const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(std::string earlier, EarlierCommitOf(components_.earlier, request));
  if (!earlier.empty()) return earlier;
  OCTAVO_ASSIGN_OR_RETURN(
      const auto operation,
      components_.operations.Begin(operation::OperationKind::kCommit, name, request));
  if (operation.run == nullptr) return operation.name;
  // A volume that is not there is left to the committer, which says so.
  if (const auto volume = components_.volumes.Get(name); volume.ok()) {
    OCTAVO_ASSIGN_OR_RETURN(const std::string destination,
                            volume::ExpandDestination(options.destination, *volume));
    OCTAVO_RETURN_IF_ERROR(
        components_.CheckRoot(security::OwnerOf(caller), destination, "options.destination"));
  }
  OCTAVO_RETURN_IF_ERROR(components_.committer.Check(options, name));
  const volume::ClientVerb asked{.lease_token = lease_token, .caller = caller};
  const auto done = [run = operation.run](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    if (outcome.ok()) {
      run->Finish(absl::OkStatus(), *outcome);
    } else {
      run->Finish(outcome.status());
    }
  };
  OCTAVO_RETURN_IF_ERROR(components_.committer.Commit(name, options, operation.run->control(), done,
                                                      UnlessDraining(components_.drain, &asked)));
  operation.run->Started();
  return operation.name;
}

model::VolumeStatus Volumes::WithLeases(model::VolumeStatus volume) {
  volume.shared_leases = components_.leases.CountOf(volume.name).shared;
  return volume;
}

absl::Status Volumes::CheckCommit(const model::CommitOptions& options,
                                  const security::Principal& caller) {
  OCTAVO_RETURN_IF_ERROR(
      components_.CheckRoot(security::OwnerOf(caller), options.destination, "options.destination"));
  return components_.committer.Check(options);
}

absl::Status Volumes::CheckDevice(const std::string& name, const char* where, int device) {
  const absl::Status health = components_.devices.device(device).Health();
  if (health.ok()) return health;
  const std::string on = components_.devices.names().Name(device);
  return WithInfo(absl::DataLossError(absl::StrCat(name, " was ", where, " the memory of ", on,
                                                   ", which is lost: ", health.message())),
                  {.reason = Reason::kLost, .field = "name", .numbers = {{"device", on}}});
}

}  // namespace octavo::engine
