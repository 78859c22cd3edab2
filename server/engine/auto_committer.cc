#include "server/engine/auto_committer.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/log.h"
#include "gpu/base/status.h"
#include "server/model/volume_states.h"

namespace octavo::engine {

absl::Status AutoCommitter::Begin(const std::string& volume, const model::CommitOptions& options,
                                  const volume::ClientVerb* asked) {
  const auto held = volumes_->Get(volume);
  const std::string job = held.ok() ? held->job : "";
  absl::Status begun = CheckDestination(volume, options);
  if (begun.ok()) {
    const auto run = !job.empty() && asked == nullptr ? BeginOperation(*held) : nullptr;
    begun = committer_->Commit(volume, options, ControlOf(run), Ending(volume, job, run), asked);
    if (begun.ok() && run != nullptr) run->Started();
  }
  if (!begun.ok()) {
    Log(LogLevel::kError, "automatic commit not possible; the volume stays held",
        {{"volume", volume}, {"error", std::string(begun.message())}});
    Warn(volume, begun);
  }
  return begun;
}

std::unique_ptr<volume::GrowingCommit> AutoCommitter::BeginGrowing(
    const volume::GrowingVolume& volume, const model::CommitOptions& options) {
  const std::string& name = volume.status.name;
  if (!CheckDestination(name, options).ok()) return nullptr;
  const auto run = BeginOperation(volume.status);
  auto begun = committer_->CommitGrowing(volume, options, ControlOf(run),
                                         Ending(name, volume.status.job, run));
  if (!begun.ok()) return nullptr;
  if (run != nullptr) run->Started();
  return *std::move(begun);
}

std::shared_ptr<operation::OperationRun> AutoCommitter::BeginOperation(
    const model::VolumeStatus& volume) {
  auto begun = operations_->Begin(operation::OperationKind::kCommit, volume.name,
                                  {.id = "", .body = "", .owner = volume.owner, .trace_id = ""});
  return begun.ok() ? std::move(begun->run) : nullptr;
}

model::WorkControl AutoCommitter::ControlOf(const std::shared_ptr<operation::OperationRun>& run) {
  if (run == nullptr) return {};
  model::WorkControl control = run->control();
  control.origin.request_digest.clear();
  return control;
}

volume::Committer::Done AutoCommitter::Ending(const std::string& volume, const std::string& job,
                                              std::shared_ptr<operation::OperationRun> run) {
  return [this, volume, job,
          run = std::move(run)](const absl::StatusOr<storage::CommitOutcome>& outcome) {
    // The job first: a client that waits for the operation looks at the job then.
    if (!outcome.ok()) Warn(volume, outcome.status());
    if (outcome.ok() && !job.empty())
      TellJob([&](job::JobQueue& jobs) { jobs.NoteCommitted(job, outcome->path); });
    if (run == nullptr) return;
    if (outcome.ok()) {
      run->Finish(absl::OkStatus(), *outcome);
    } else {
      run->Finish(outcome.status());
    }
  };
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
  // A client that was faster has committed it, or does not want it; or it was never made.
  if (!held.ok() || !model::InMemory(held->state)) return;
  if (held->state == model::VolumeState::kCommitting &&
      InfoOf(status).reason == Reason::kVolumeState)
    return;
  const bool made = held->state != model::VolumeState::kAcquiring;
  const std::string warning =
      absl::StrCat(volume, " could not be committed automatically and stays held",
                   made ? ": " : " once it is made: ", status.message());
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
