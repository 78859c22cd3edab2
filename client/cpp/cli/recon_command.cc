// octavo recon: a whole reconstruction from the command line.

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/system.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/axis_evidence.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/grey_picture.h"
#include "client/cpp/cli/job_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/own_session.h"
#include "client/cpp/cli/recon_batch.h"
#include "client/cpp/cli/recon_flags.h"
#include "client/cpp/cli/recon_preview.h"
#include "client/cpp/cli/scan_follower.h"
#include "client/cpp/cli/trials.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

// Removes the results of a job from the server.
void DiscardVolumes(Session& session, const v1::Job& job) {
  for (const std::string& name : job.volumes()) {
    v1::DiscardVolumeRequest request;
    request.set_name(name);
    v1::DiscardVolumeResponse gone;
    Check(session, v1::VolumeService::NewStub(session.channel())
                       ->DiscardVolume(session.Context().get(), request, &gone));
  }
}

// Refuses a slice that the result will not have, before any work begins.
void CheckSlice(const ReconFlags& flags, const v1::PlanJobResponse& plan) {
  if (!flags.slice().has_value() || plan.shape().empty() || *flags.slice() < plan.shape(0)) return;
  throw CLI::ValidationError(
      "--slice", absl::StrCat("is ", *flags.slice(), "; allowed are 0 to ", plan.shape(0) - 1,
                              ", the slices of the volume, which counts those of --rows from 0"));
}

bool WriteSlice(Session& session, const ReconFlags& flags, const v1::Volume& volume) {
  const int64_t slice = flags.slice().value_or(volume.shape(0) / 2);
  const std::vector<float> values = ReadSlice(session, volume, slice);
  if (values.empty()) return false;
  if (!WritePng(flags.png(), GreysOf(values), volume.shape(1), volume.shape(2))) {
    std::cerr << "octavo: could not write " << flags.png() << "\n";
    session.exit_code = kFailed;
    return false;
  }
  if (!session.json) std::cout << flags.png() << "  slice " << slice << "\n";
  return true;
}

void PrintHeld(const std::string& volume) {
  std::cout << "  held by the server: octavo volume commit " << volume
            << ", or octavo volume discard " << volume << "\n";
}

// A result that could not be committed is not discarded after kTimeToLive.
void Keep(Session& session, const std::string& volume) {
  v1::HoldVolumeRequest request;
  request.set_name(volume);
  v1::HoldVolumeResponse held;
  if (Check(session, v1::VolumeService::NewStub(session.channel())
                         ->HoldVolume(session.Context().get(), request, &held)) &&
      !session.json) {
    PrintHeld(volume);
  }
}

// The file of the requested picture; empty: none.
std::string PictureOf(const ReconFlags& flags, const v1::JobSpec& spec) {
  return flags.png().empty() && spec.tomography().has_try_centers() ? "centers.png" : flags.png();
}

// An interrupt before the commit ends everything; a commit that has begun runs to its end, and the
// exit code tells its result.
void Show(Session& session, const ReconFlags& flags, const v1::JobSpec& spec, const v1::Job& job,
          const InterruptibleWork& interruptible) {
  const std::optional<v1::CommitOptions> commit = flags.Commit();
  const bool tries = spec.tomography().has_try_centers();
  const std::string png = PictureOf(flags, spec);
  v1::GetVolumeRequest get;
  get.set_name(job.volumes(0));
  v1::GetVolumeResponse answer;
  if (!Check(session, v1::VolumeService::NewStub(session.channel())
                          ->GetVolume(session.Context().get(), get, &answer)))
    return;
  // Commit the result even if the picture could not be written.
  if (!png.empty())
    (void)(tries ? ShowTrials(session, job, answer.volume(), png)
                 : WriteSlice(session, flags, answer.volume()));
  if (interruptible.interrupted()) {
    DiscardVolumes(session, job);
    session.exit_code = kInterrupted;
    return;
  }
  if (commit.has_value()) {
    const int shown = std::exchange(session.exit_code, static_cast<int>(kOk));
    v1::CommitVolumeRequest request;
    request.set_name(answer.volume().name());
    *request.mutable_options() = *commit;
    CommitVolume(session, request, nullptr);
    if (session.exit_code != kOk) {
      Keep(session, answer.volume().name());
    } else {
      session.exit_code = shown;
    }
  } else if (!png.empty()) {
    DiscardVolumes(session, job);
  } else if (!session.json) {
    PrintHeld(answer.volume().name());
  }
}

// Checks the destination before the result is computed. False if the result cannot be written
// there.
bool CanBeWritten(Session& session, const v1::CommitOptions& options) {
  v1::CommitVolumeRequest request;
  request.set_validate_only(true);
  *request.mutable_options() = options;
  v1::CommitVolumeResponse answer;
  return Check(session, v1::VolumeService::NewStub(session.channel())
                            ->CommitVolume(session.Context().get(), request, &answer));
}

// The number of the job's volumes that the server has: those that it still has to write, and those
// that it could not write. Nothing if it does not answer, which is told.
std::optional<int> VolumesThere(Session& session, const std::string& job) {
  v1::ListVolumesRequest request;
  request.set_parent(job);
  request.set_page_size(1000);
  const auto stub = v1::VolumeService::NewStub(session.channel());
  for (int count = 0;;) {
    v1::ListVolumesResponse answer;
    if (!Check(session, stub->ListVolumes(session.Context().get(), request, &answer)))
      return std::nullopt;
    count += answer.volumes_size();
    if (answer.next_page_token().empty()) return count;
    request.set_page_token(answer.next_page_token());
  }
}

// Waits until the server has written all volumes of the series, or could not. The job tells of a
// commit a moment after the volume is gone, and nothing of a volume that another client has
// committed or discarded meanwhile.
void AwaitCommits(Session& session, v1::Job job) {
  constexpr int kTellTurns = 20;
  const auto stub = v1::JobService::NewStub(session.channel());
  const auto written = [&] { return job.commits_size() + static_cast<int>(job.commit_failures()); };
  for (int gone = 0; written() < job.volumes_size() && gone < kTellTurns;) {
    const std::optional<int> there = VolumesThere(session, job.name());
    v1::GetJobRequest request;
    request.set_name(job.name());
    v1::GetJobResponse answer;
    if (!there.has_value() ||
        !Check(session, stub->GetJob(session.Context().get(), request, &answer)))
      return;
    job.Swap(answer.mutable_job());
    gone = *there > static_cast<int>(job.commit_failures()) ? 0 : gone + 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (session.json) {
    PrintJson(job);
  } else {
    for (const std::string& path : job.commits()) std::cout << path << "\n";
  }
  if (job.commits_size() == job.volumes_size()) return;
  std::cerr << "octavo: " << job.volumes_size() - job.commits_size() << " of " << job.volumes_size()
            << " volumes were not written: octavo job show " << job.name()
            << " says why; those that are held stay for an hour\n";
  session.exit_code = kFailed;
}

// Follows the job to its end; of a scan that is still being written, `follower` sends what comes.
v1::Job Await(Session& session, const v1::Job& job, ScanFollower* follower,
              const InterruptibleWork& interruptible, bool volumes) {
  if (follower != nullptr && !follower->Push(job, [&] { return interruptible.interrupted(); }) &&
      !interruptible.interrupted())
    (void)CancelOperation(session, job.operation());
  const int code = session.exit_code;
  v1::Job ended = WatchJob(session, job.name(), {.told = WarningsOf(job), .volumes = volumes});
  if (code != kOk) session.exit_code = code;
  return ended;
}

// A series of volumes: the server writes each as soon as it is held, while the others are made.
void RunSeries(Session& session, const ReconFlags& flags, v1::JobSpec spec,
               ScanFollower* follower) {
  JobFlags asked = flags.job();
  asked.watch = false;
  if (asked.plan || flags.no_wait()) {
    (void)asked.Submit(session, spec);
    return;
  }
  constexpr double kTimeToLive = 3600;  // of one that could not be written
  if (spec.has_commit() && !spec.has_ttl()) *spec.mutable_ttl() = DurationOf(kTimeToLive);
  InterruptibleWork interruptible(session);
  v1::Job job = asked.Submit(session, spec);
  if (job.name().empty()) return;
  interruptible.Begun(job.operation());
  job = Await(session, job, follower, interruptible, !spec.has_commit());
  if (spec.has_commit()) AwaitCommits(session, job);
  if (interruptible.interrupted()) {
    if (!spec.has_commit()) DiscardVolumes(session, job);
    session.exit_code = kInterrupted;
  }
}

// One scan, whose result is committed to --output, shown or held.
void RunOne(Session& session, const ReconFlags& flags) {
  v1::JobSpec spec = flags.Spec(flags.files().front());
  const bool series = spec.tomography().has_series();
  const std::optional<v1::CommitOptions> commit =
      flags.Commit();  // refuses unknown options before any work begins
  const bool commits = commit.has_value();
  if (commits && !series && !CanBeWritten(session, *commit)) return;
  std::optional<ScanFollower> follower;
  if (flags.follow()) {
    (void)session.channel();  // refuses an address before any waiting
    if (const std::string png = PictureOf(flags, spec); !png.empty()) CheckWritable("--png", png);
    follower.emplace(session, spec.tomography(), flags.following());
    if (!follower->AwaitBegin(spec.mutable_tomography())) return;
  }
  ScanFollower* const following = follower.has_value() ? &*follower : nullptr;
  if (series) return RunSeries(session, flags, std::move(spec), following);
  JobFlags asked = flags.job();
  asked.watch = false;  // below, where it can be interrupted
  // What cannot be written in this format is refused before the result is computed, too.
  v1::JobSpec planned = spec;
  if (commits) *planned.mutable_commit() = *commit;
  if (flags.slice().has_value() || (commits && !flags.no_wait() && !asked.plan)) {
    const std::optional<v1::PlanJobResponse> plan = PlanOf(session, planned);
    if (!plan.has_value()) return;
    CheckSlice(flags, *plan);
  }
  if (asked.plan) {
    (void)asked.Submit(session, planned);
    return;
  }
  if (flags.no_wait()) {
    (void)asked.Submit(session, spec);
    return;
  }
  if (const std::string png = PictureOf(flags, spec); !png.empty()) CheckWritable("--png", png);
  if (!flags.axis_png().empty()) CheckWritable("--axis-png", flags.axis_png());
  // If this program is killed, its results must not stay on the server: a volume to commit has a
  // time to live, a volume that is only shown belongs to a session.
  constexpr double kTimeToLive = 3600;
  std::optional<OwnSession> own;
  if (commits) {
    if (!spec.has_ttl()) *spec.mutable_ttl() = DurationOf(kTimeToLive);
  } else if (!flags.png().empty() || spec.tomography().has_try_centers()) {
    if (own.emplace(session, "octavo recon").secret().empty()) return;
    spec.set_orphan(v1::ORPHAN_DISCARD);
  }
  // An interrupt ends the submitted job; then its results are removed from the server.
  InterruptibleWork interruptible(session);
  v1::Job job = asked.Submit(session, spec, own.has_value() ? own->secret() : "");
  interruptible.Begun(job.operation());
  if (!job.name().empty())
    job = Await(session, job, following, interruptible, commits || PictureOf(flags, spec).empty());
  if (interruptible.interrupted()) {
    DiscardVolumes(session, job);
    session.exit_code = kInterrupted;
    return;
  }
  // An axis in doubt may have ended the job.
  if (!flags.axis_png().empty() && !job.tomography().centers().empty())
    (void)ShowAxis(session, spec, job, flags.axis_png());
  if (job.state() == v1::JOB_STATE_DONE && !job.volumes().empty())
    Show(session, flags, spec, job, interruptible);
}

// The pictures of all scans, before anything is reconstructed. A scan without them does not keep
// the others from theirs, as in the run. Returns whether all were made; else the exit code is set.
bool MakePreviews(Session& session, const ReconFlags& flags) {
  ReconPreview preview(session, flags);
  int worst = kOk;
  for (const std::string& file : flags.files()) {
    session.exit_code = kOk;
    if (preview.Make(file)) continue;
    worst = session.exit_code;
    if (worst != kFailed || flags.stop_on_error()) break;
  }
  session.exit_code = worst;
  return worst == kOk;
}

// Returns whether the run follows.
bool Preview(Session& session, const ReconFlags& flags) {
  (void)flags.Commit();  // refuses unknown options before any work begins
  const bool made = MakePreviews(session, flags);
  if (flags.preview_only()) return false;
  if (!flags.HasPlace()) {
    if (made && !session.json)
      std::cerr << "octavo: pictures alone: with -o, --output-dir, --png or --try-centers the "
                   "reconstruction follows\n";
    return false;
  }
  return made || (session.exit_code == kFailed && flags.batch() && !flags.stop_on_error());
}

// Finds the scans that patterns and folders stand for. False if the server, which tells the folders
// from which names count, does not answer, and a pattern needs that.
bool FindScans(Session& session, ReconFlags& flags) {
  if (flags.follow() || !flags.MayNameMany()) return true;
  v1::GetInfoResponse info;
  const grpc::Status status = v1::SystemService::NewStub(session.channel())
                                  ->GetInfo(session.Context().get(), v1::GetInfoRequest(), &info);
  if (!status.ok()) return !flags.HasPattern() || Check(session, status);
  std::vector<std::string> roots;
  for (const auto& root : info.storage()) {
    if (root.use() == v1::GetInfoResponse::StorageRoot::USE_REPLAY) roots.push_back(root.path());
  }
  for (const std::string& note : flags.FindScans(std::move(roots), session.address))
    std::cerr << "octavo: " << note << "\n";
  return true;
}

void Run(Session& session, ReconFlags& flags) {
  if (!flags.settings().written().empty()) return flags.settings().Write();
  (void)flags.files();  // there must be one
  if (!FindScans(session, flags)) return;
  if (!flags.preview().empty() && !Preview(session, flags)) return;
  if (const std::string chosen = flags.ChosenIterations(); !chosen.empty() && !session.json)
    std::cerr << "octavo: " << chosen << "\n";
  if (!flags.batch()) return RunOne(session, flags);
  ReconBatch batch(session, flags);
  if (flags.job().plan) return batch.Plan();
  const int previews = session.exit_code;
  batch.Run();
  if (session.exit_code == kOk) session.exit_code = previews;
}

}  // namespace

void AddReconCommand(CLI::App& app, Session& session) {
  auto* recon = app.add_subcommand(
      "recon", "reconstruct a tomography scan: read, prepare, reconstruct, commit");
  auto flags = std::make_shared<ReconFlags>();
  flags->AddTo(recon);
  recon->callback([&session, flags] { Run(session, *flags); });
}

}  // namespace octavo::cli
