#include "server/engine/orphan_policy.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"

namespace octavo::engine {

void OrphanPolicy::Apply(const model::VolumeStatus& volume) {
  model::Retention retention =
      volume.origin == nullptr ? model::Retention{} : volume.origin->spec.retention;
  if (!volume.job.empty()) retention = {.orphan = volume.job_orphan};
  const absl::Status done = Do(volume, retention);
  if (InfoOf(done).reason == Reason::kLeased) {
    // A client leased it since the store checked; the store reports it again when the lease has
    // ended.
    return volumes_->expiry().TellOrphanAgain(volume.name);
  }
  Log(LogLevel::kInfo, "volume orphaned",
      {{"volume", volume.name},
       {"session", volume.session},
       {"policy", static_cast<int>(retention.orphan)},
       {"result", done.ToString()}});
}

absl::Status OrphanPolicy::Do(const model::VolumeStatus& volume,
                              const model::Retention& retention) {
  const volume::ClientVerb asked{.detach_exports = true, .of_orphans = true};
  switch (retention.orphan) {
    case model::Orphan::kSpillDisk: {
      // The spiller's immediate error. It logs later errors, and the volume stays held.
      const auto nobody_waits = [](const absl::StatusOr<model::VolumeStatus>&) {};
      return spiller_->Spill(volume.name, model::Tier::kDisk, {}, nobody_waits, &asked);
    }
    case model::Orphan::kCommitDefault: {
      model::CommitOptions options = retention.auto_commit;
      // The volumes that jobs make of one scan must not have one name.
      if (options.destination.empty()) {
        options.destination =
            volume.job.empty()
                ? "orphaned/{scan}_{index:05}"
                : absl::StrCat("orphaned/", absl::StripPrefix(volume.job, "jobs/"), "_{index:05}");
        // Relative paths lie in the first storage root, which may not be one of the owner's.
        const auto roots = root_rights_->RootsOf(volume.owner);
        if (roots.has_value() && !roots->empty())
          options.destination = absl::StrCat(roots->front(), "/", options.destination);
      }
      // Nor may a volume have the name of its raw records or of the volumes derived from it.
      if (volume.is_raw) options.destination += "_raw";
      if (!volume.derived_from.empty())
        options.destination += absl::StrCat("_", absl::StripPrefix(volume.name, "volumes/"));
      return committer_->Begin(volume.name, options, &asked);
    }
    case model::Orphan::kDiscard:
      return volumes_
          ->Discard(volume.name, Reason::kSessionExpired,
                    absl::StrCat("its client's ", volume.session, " has ended"), &asked)
          .status();
    default: return absl::OkStatus();
  }
}

}  // namespace octavo::engine
