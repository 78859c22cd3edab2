#include "server/engine/auto_committer.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"

namespace octavo::engine {

absl::Status AutoCommitter::Begin(const std::string& volume, const model::CommitOptions& options,
                                  const volume::ClientVerb* asked) {
  const auto done = [this, volume](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    if (!outcome.ok()) Warn(volume, outcome.status());
  };
  absl::Status begun = CheckDestination(volume, options);
  if (begun.ok()) begun = committer_->Commit(volume, options, {}, done, asked);
  if (!begun.ok()) {
    Log(LogLevel::kError, "automatic commit not possible; the volume stays held",
        {{"volume", volume}, {"error", std::string(begun.message())}});
    Warn(volume, begun);
  }
  return begun;
}

absl::Status AutoCommitter::CheckDestination(const std::string& volume,
                                             const model::CommitOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const model::VolumeStatus held, volumes_->Get(volume));
  OCTAVO_ASSIGN_OR_RETURN(const std::string destination,
                          volume::ExpandDestination(options.destination, held));
  return check_root_(held.owner, destination);
}

void AutoCommitter::Warn(const std::string& volume, const absl::Status& status) {
  const auto held = volumes_->Get(volume);
  // A client that was faster has committed it, or does not want it.
  if (!held.ok() || held->state != model::VolumeState::kHeld) return;
  if (const auto session = scans_->Find(held->scan); session.ok()) {
    (*session)->WarnOfCommit(absl::StrCat(
        volume, " could not be committed automatically and stays held: ", status.message()));
  }
}

}  // namespace octavo::engine
