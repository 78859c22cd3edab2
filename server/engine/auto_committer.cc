#include "server/engine/auto_committer.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"

namespace octavo::engine {

absl::Status AutoCommitter::Begin(const std::string& volume, const model::CommitOptions& options,
                                  const volume::ClientVerb* asked) {
  const auto held = volumes_->Get(volume);
  const std::string job = held.ok() ? held->job : "";
  const auto done = [this, volume, job](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    if (!outcome.ok()) return Warn(volume, outcome.status());
    if (!job.empty()) TellJob([&](job::JobQueue& jobs) { jobs.NoteCommitted(job, outcome->path); });
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
  return check_root_(held.owner, destination,
                     held.job.empty() ? "retention.auto_commit.destination" : "commit.destination");
}

void AutoCommitter::Warn(const std::string& volume, const absl::Status& status) {
  const auto held = volumes_->Get(volume);
  // A client that was faster has committed it, or does not want it.
  if (!held.ok() || held->state != model::VolumeState::kHeld) return;
  const std::string warning = absl::StrCat(
      volume, " could not be committed automatically and stays held: ", status.message());
  if (!held->job.empty())
    return TellJob([&](job::JobQueue& jobs) { jobs.NoteCommitFailed(held->job, warning); });
  if (const auto session = scans_->Find(held->scan); session.ok())
    (*session)->WarnOfCommit(warning);
}

void AutoCommitter::TellJob(const std::function<void(job::JobQueue&)>& tell) {
  MutexLock lock(notify_mutex_);
  if (jobs_ != nullptr) tell(*jobs_);
}

void AutoCommitter::ForgetJobs() {
  MutexLock lock(notify_mutex_);
  jobs_ = nullptr;
}

}  // namespace octavo::engine
