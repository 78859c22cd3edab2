#include "server/engine/auto_committer.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"

namespace octavo::engine {

absl::Status AutoCommitter::Begin(const std::string& volume, const model::CommitOptions& options,
                                  const volume::ClientVerb* asked) {
  volume::CommitCallbacks callbacks;
  callbacks.on_done = [this, volume](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    if (!outcome.ok()) Warn(volume, outcome.status());
  };
  const auto handle = committer_->Commit(volume, options, "", std::move(callbacks), asked);
  if (!handle.ok()) {
    Log(LogLevel::kError, "automatic commit not possible; the volume stays held",
        {{"volume", volume}, {"error", std::string(handle.status().message())}});
    Warn(volume, handle.status());
  }
  return handle.status();
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
