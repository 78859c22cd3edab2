#include "server/engine/jobs.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/engine/earlier_result.h"
#include "server/engine/history_rows.h"
#include "server/engine/internal.h"
#include "server/engine/job_kinds.h"
#include "server/security/rights.h"
#include "server/security/shares.h"
#include "server/source/projection_ring.h"
#include "server/storage/commit/whole_commit.h"
#include "server/storage/formats/writer.h"
#include "server/volume/committer.h"
#include "server/volume/volume_metadata.h"

namespace octavo::engine {
namespace {

/// As Committer::Check. The error of a destination that is taken also tells in which way the result
/// there is another one than a tomography job would make (octavo recon --skip-existing).
absl::Status CheckDestination(Components& components, const model::JobSpec& spec,
                              const model::CommitOptions& options,
                              const std::vector<std::string>& file_roots) {
  const absl::Status status = components.committer.Check(options);
  const auto* const wanted = std::get_if<model::TomographySpec>(&spec.work);
  if (!absl::IsAlreadyExists(status) || wanted == nullptr) return status;
  const auto processing =
      storage::ReadProcessing(components.storage->roots(), options.destination, options.writer);
  if (!processing.ok()) return status;  // what it does not say cannot differ
  const std::string differs = HowResultDiffers(*processing, *wanted, file_roots);
  if (differs.empty()) return status;
  ErrorInfo info = InfoOf(status);
  info.numbers.emplace_back("differs", differs);
  return WithInfo(status, info);
}

}  // namespace

Jobs::Jobs(Components* components)
    : components_(*components), watches_([this](const std::string& name) { return Get(name); }) {}

Jobs::~Jobs() = default;

job::JobEnvironment Jobs::Environment(const security::Owner& who) {
  return {.volumes = &components_.volumes,
          .spiller = &components_.spiller,
          .ledger = &components_.ledger,
          .buffers = &components_.buffers,
          .file_roots = components_.config.root_rights.Among(components_.config.replay_roots, who),
          .projection_memory = &components_.projection_memory,
          .payer = security::ShareOf(who),
          .deposits = &components_.deposits,
          .clock = components_.clock,
          .reads = &components_.reads,
          .devices = &components_.devices};
}

absl::StatusOr<job::JobStatus> Jobs::Submit(const model::JobSpec& spec,
                                            model::AdmissionReport* report) {
  if (spec.request_id.empty()) return SubmitNew(spec, report);
  OCTAVO_ASSIGN_OR_RETURN(const std::optional<job::JobStatus> before, EarlierAnswer(spec));
  if (before.has_value()) return *before;
  {
    // Two retries of one request must not both be queued. The lock is not kept while a job is made:
    // that opens files, and storage that hangs would block every client that submits a job.
    MutexLock lock(submit_mutex_);
    OCTAVO_ASSIGN_OR_RETURN(const std::optional<job::JobStatus> earlier,
                            components_.jobs.Earlier(spec));
    if (earlier.has_value()) return *earlier;
    if (!submitted_.insert(spec.request_id).second) {
      return WithInfo(absl::UnavailableError(absl::StrCat(
                          "request_id: the server has not answered the first call with '",
                          spec.request_id, "' yet; ask again")),
                      {.reason = Reason::kInProgress,
                       .field = "request_id",
                       .numbers = {{"retryable", "true"}}});
    }
  }
  const absl::Cleanup over = [&] {
    MutexLock lock(submit_mutex_);
    submitted_.erase(spec.request_id);
  };
  return SubmitNew(spec, report);
}

absl::StatusOr<job::JobStatus> Jobs::SubmitNew(const model::JobSpec& spec,
                                               model::AdmissionReport* report) {
  OCTAVO_RETURN_IF_ERROR(components_.drain.Check());
  OCTAVO_ASSIGN_OR_RETURN(auto work, Make(spec));
  OCTAVO_ASSIGN_OR_RETURN(job::JobStatus job,
                          components_.jobs.Submit(spec, std::move(work), report));
  // The session may have ended while the job was made: its end found no job then.
  if (spec.orphan == model::Orphan::kDiscard && components_.sessions.Gone(spec.session))
    return components_.jobs.CancelScratch(job);
  return job;
}

absl::StatusOr<std::unique_ptr<job::JobWork>> Jobs::Make(const model::JobSpec& spec) {
  OCTAVO_RETURN_IF_ERROR(CheckOrphan(spec));
  OCTAVO_RETURN_IF_ERROR(CheckResults(spec));
  OCTAVO_RETURN_IF_ERROR(CheckRoots(spec));
  OCTAVO_ASSIGN_OR_RETURN(auto work,
                          MakeJobWork(spec, Environment(security::OwnerOf(spec.caller.principal))));
  OCTAVO_RETURN_IF_ERROR(CheckCommit(spec, *work));
  return work;
}

absl::Status Jobs::CheckCommit(const model::JobSpec& spec, const job::JobWork& work) {
  if (!spec.commit.has_value()) return absl::OkStatus();
  // First, because what comes after it names all roots.
  OCTAVO_RETURN_IF_ERROR(components_.CheckRoot(security::OwnerOf(spec.caller.principal),
                                               spec.commit->destination, "commit.destination"));
  const std::vector<std::string> roots =
      Environment(security::OwnerOf(spec.caller.principal)).file_roots;
  absl::Status status = CheckDestination(components_, spec, *spec.commit, roots);
  if (status.ok() && work.makes_series()) {
    model::VolumeStatus volume;
    const auto first = volume::ExpandDestination(spec.commit->destination, volume);
    volume.index = 1;
    if (first.ok() && *volume::ExpandDestination(spec.commit->destination, volume) == *first)
      return InvalidField("commit.destination",
                          absl::StrCat("is '", spec.commit->destination,
                                       "', the same for every volume of tomography.series; allowed "
                                       "is a path with {index} in it"));
    // The others cannot be known: a push may end at any volume. A name of the job's is not known
    // yet.
    if (first.ok() && !absl::StrContains(*first, "{") &&
        !absl::StrContains(spec.commit->destination, "{scan") &&
        !absl::StrContains(spec.commit->destination, "{title")) {
      model::CommitOptions of_first = *spec.commit;
      of_first.destination = *first;
      status = CheckDestination(components_, spec, of_first, roots);
    }
  }
  if (std::optional<model::VolumeStatus> volume = work.Expected();
      status.ok() && volume.has_value()) {
    volume->title = spec.title;
    status = storage::ResolveOptions(spec.commit->writer, volume::MetaOf(*volume, "", "")).status();
  }
  return base::AtCommitOptions("commit", status);
}

absl::Status Jobs::CheckRoots(const model::JobSpec& spec) {
  const security::Owner who = security::OwnerOf(spec.caller.principal);
  const std::vector<std::string>& all = components_.config.replay_roots;
  const std::vector<std::string> allowed = components_.config.root_rights.Among(all, who);
  if (allowed.size() == all.size()) return absl::OkStatus();
  const auto check = [&](const std::string& field, const std::string& path) -> absl::Status {
    if (path.empty()) return absl::OkStatus();
    // What lies outside of all roots is refused as everybody's is, when the file is looked for.
    const std::string plain = std::filesystem::path(path).lexically_normal().string();
    const bool known = std::any_of(all.begin(), all.end(), [&](const std::string& root) {
      return absl::StartsWith(plain, absl::StrCat(absl::StripSuffix(root, "/"), "/"));
    });
    if (!known && !allowed.empty()) return absl::OkStatus();
    return components_.config.root_rights.Check(who, plain, field, path);
  };
  if (const auto* import = std::get_if<model::ImportSpec>(&spec.work))
    return check("volume_import.path", import->path);
  const auto* tomography = std::get_if<model::TomographySpec>(&spec.work);
  if (tomography == nullptr) return absl::OkStatus();
  if (const auto* file = std::get_if<model::ProjectionFileSpec>(&tomography->input))
    return check("tomography.file.path", file->path);
  if (const auto* mosaic = std::get_if<model::ProjectionMosaicSpec>(&tomography->input)) {
    for (size_t i = 0; i < mosaic->tiles.size(); ++i) {
      OCTAVO_RETURN_IF_ERROR(check(absl::StrCat("tomography.mosaic.tiles[", i, "].file.path"),
                                   mosaic->tiles[i].file.path));
    }
  }
  return absl::OkStatus();
}

// As Scans::CheckSpill does for scans.
absl::Status Jobs::CheckOrphan(const model::JobSpec& spec) {
  if (spec.orphan != model::Orphan::kSpillDisk) return absl::OkStatus();
  const absl::Status status = components_.spiller.CheckTier(model::Tier::kDisk);
  if (status.ok()) return status;
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat("orphan: ", status.message())),
      {.reason = InfoOf(status).reason, .field = "orphan", .numbers = InfoOf(status).numbers});
}

absl::Status Jobs::CheckResults(const model::JobSpec& spec) {
  if (!spec.results.has_value() && !spec.commit.has_value()) return absl::OkStatus();
  if (spec.results.has_value() && spec.commit.has_value()) {
    return InvalidField("results",
                        absl::StrCat("is ", Name(*spec.results),
                                     " together with commit, after which nothing is left to move; "
                                     "allowed one of the two"));
  }
  const char* instead = nullptr;
  if (std::holds_alternative<model::KCalibrationSpec>(spec.work)) {
    instead = "a k_calibration, which holds no volume";
  } else if (const auto* focus = std::get_if<model::DispersionAutofocusSpec>(&spec.work)) {
    if (!focus->reprocess)
      instead = "a dispersion_autofocus without reprocess, which holds no volume";
  } else if (const auto* import = std::get_if<model::ImportSpec>(&spec.work)) {
    if (import->volume.array.has_value()) instead = "an import whose result is a buffer";
  }
  if (instead != nullptr && spec.commit.has_value()) {
    return InvalidField("commit", absl::StrCat("is given for ", instead, "; allowed is none"));
  }
  if (instead != nullptr) {
    return InvalidField("results", absl::StrCat("is ", Name(*spec.results), " for ", instead,
                                                "; allowed UNSPECIFIED, DEVICE"));
  }
  if (!spec.results.has_value()) return absl::OkStatus();
  const absl::Status status = components_.spiller.CheckTier(*spec.results);
  if (status.ok()) return status;
  return WithInfo(
      absl::FailedPreconditionError(absl::StrCat("results: ", status.message())),
      {.reason = InfoOf(status).reason, .field = "results", .numbers = InfoOf(status).numbers});
}

absl::StatusOr<model::AdmissionReport> Jobs::Plan(const model::JobSpec& spec, job::JobPlan* plan) {
  OCTAVO_ASSIGN_OR_RETURN(const auto work, Make(spec));
  return components_.jobs.Plan(spec, *work, plan);
}

absl::StatusOr<std::optional<job::JobStatus>> Jobs::EarlierAnswer(const model::JobSpec& spec) {
  OCTAVO_ASSIGN_OR_RETURN(
      const std::string name,
      components_.earlier.AnswerTo(storage::HistoryKind::kJob, spec.request_id,
                                   LastingDigest(spec.request_digest, spec.session),
                                   /*owner=*/std::nullopt));
  const job::JobStatus* const job = components_.earlier.FindJob(name);
  if (job == nullptr) return std::nullopt;
  if (job->state == job::JobState::kLost) return LostError("job", name, job->reason);
  return *job;
}

absl::StatusOr<job::JobStatus> Jobs::Get(const std::string& name) {
  const job::JobStatus* const earlier = components_.earlier.FindJob(name);
  if (earlier != nullptr) return *earlier;
  return components_.jobs.Get(name);
}

std::vector<job::JobStatus> Jobs::List(uint64_t before, size_t most) {
  std::vector<job::JobStatus> list = components_.jobs.List(before, most);
  std::vector<job::JobStatus> earlier = components_.earlier.Jobs(before, most - list.size());
  list.insert(list.end(), std::make_move_iterator(earlier.begin()),
              std::make_move_iterator(earlier.end()));
  return list;
}

absl::StatusOr<std::unique_ptr<base::Handle>> Jobs::Watch(
    const std::string& name, std::function<void(const absl::StatusOr<job::JobStatus>&)> callback) {
  OCTAVO_RETURN_IF_ERROR(Get(name).status());
  return watches_.Add(name, std::move(callback));
}

absl::StatusOr<job::JobStatus> Jobs::Cancel(const std::string& name,
                                            const security::Principal& caller) {
  if (const job::JobStatus* earlier = components_.earlier.FindJob(name); earlier != nullptr) {
    OCTAVO_RETURN_IF_ERROR(
        security::MayChange(caller, security::OwnerOf(earlier->spec.caller.principal), name));
    return *earlier;  // it has ended
  }
  return components_.jobs.Cancel(name, Reason::kCancelled, "cancelled by a client", &caller);
}

void Jobs::OnJobsChanged() {
  watches_.Wake();
  components_.history.OnJobsChanged();
  components_.operation_watches.OnOperationsChanged();  // a job is an operation, too
}

void Jobs::OnCommitWanted(const std::string& volume, const model::CommitOptions& options) {
  (void)components_.auto_committer.Begin(volume, options);
}

std::unique_ptr<volume::GrowingCommit> Jobs::OnGrowingCommitWanted(
    const volume::GrowingVolume& volume, const model::CommitOptions& options) {
  return components_.auto_committer.BeginGrowing(volume, options);
}

absl::StatusOr<std::shared_ptr<source::ProjectionPort>> Jobs::OpenProjectionPush(
    const std::string& job, const security::Principal& caller) {
  if (const job::JobStatus* earlier = components_.earlier.FindJob(job); earlier != nullptr) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        job, " is ", Name(earlier->state), ", of an earlier run of the server")),
                    {.reason = Reason::kJobState,
                     .field = "job",
                     .numbers = {{"state", Name(earlier->state)}}});
  }
  return components_.jobs.ProjectionPortOf(job, &caller);
}

absl::StatusOr<RingTicket> Jobs::OpenRing(const std::string& job, int64_t slots,
                                          std::optional<uint32_t> uid,
                                          const security::Principal& caller) {
  OCTAVO_ASSIGN_OR_RETURN(const auto port, OpenProjectionPush(job, caller));
  OCTAVO_RETURN_IF_ERROR(CheckHandoff(components_.config.handoff));
  OCTAVO_ASSIGN_OR_RETURN(const auto ring, port->OpenRing(slots));
  OCTAVO_RETURN_IF_ERROR(ring->CanAttach());
  OCTAVO_ASSIGN_OR_RETURN(RingTicket ticket,
                          IssueRingTicket(components_.config.handoff, ring, uid, caller));
  ticket.slots = ring->slots();
  ticket.block_records = 1;
  ticket.record_bytes = port->spec().frame_bytes();
  ticket.total_records = port->spec().frames;
  return ticket;
}

absl::StatusOr<handoff::Ticket> Jobs::OpenDeposit(const std::string& name,
                                                  const std::string& connection,
                                                  std::optional<uint32_t> uid,
                                                  const security::Principal& caller) {
  OCTAVO_RETURN_IF_ERROR(CheckHandoff(components_.config.handoff));
  return components_.deposits.Open(*components_.config.handoff, name, connection, uid,
                                   {.principal = caller.name, .project = caller.project});
}

}  // namespace octavo::engine
