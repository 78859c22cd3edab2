#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "octavo/v1/ingest.grpc.pb.h"
#include "octavo/v1/job.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/file_deposit.h"
#include "client/cpp/cli/job_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/source_flags.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"
#include "gpu/base/status.h"

namespace octavo::cli {
namespace {

struct ImportFlags {
  std::string path, value, quantity;
  std::vector<int64_t> box;
  bool to_buffer = false;
  double ttl_s = 0;
  SourceFlags source;
  JobFlags job;

  /// Throws CLI::ValidationError.
  v1::ImportJob Make() const {
    auto made = source.Make(/*array=*/to_buffer);
    if (!made.ok()) throw CLI::ValidationError(std::string(made.status().message()));
    made->set_path(path);
    if (to_buffer) made->mutable_buffer();
    if (!box.empty()) {
      made->mutable_start()->Add(box.begin(), box.begin() + 3);
      made->mutable_count()->Add(box.begin() + 3, box.end());
    }
    if (!value.empty()) made->set_value(ValueOf<v1::Value>(value));
    if (!quantity.empty()) made->set_quantity(ValueOf<v1::Quantity>(quantity));
    return *std::move(made);
  }
};

/// Whether the server does not have the file below its roots, but this computer has it.
bool IsElsewhere(const std::string& path, const grpc::Status& status) {
  const std::string reason = ReasonOf(status);
  std::error_code error;
  return !status.ok() &&
         (reason == "NO_FILE" || reason == "OUTSIDE_ROOTS" || reason == "FAILED_PRECONDITION" ||
          reason == "IDEMPOTENCY_MISMATCH") &&  // the first try may have handed the file over
         std::filesystem::exists(path, error);
}

void TellWhere(const std::string& path, const grpc::Status& status) {
  if (!IsElsewhere(path, status)) return;
  std::cerr << "  '" << path
            << "' is here: give its path as the server knows it, below one of its replay roots "
               "(octavo info lists them), or copy it there. A server on this host with a hand-over "
               "socket (handoff.unix) takes it by itself\n";
}

/// What the job found odd; then the volume, or the buffer.
void PrintImported(Session& session, const v1::Operation& ended) {
  v1::GetJobRequest of_job;
  of_job.set_name(ended.target());
  v1::GetJobResponse job;
  if (!Check(session, v1::JobService::NewStub(session.channel())
                          ->GetJob(session.Context().get(), of_job, &job)))
    return;
  if (!session.json) {
    for (const auto& warning : job.job().warnings())
      std::cout << "warning: " << WithFlags(session, warning) << "\n";
  }
  if (!job.job().buffer().empty()) return PrintBufferNow(session, job.job().buffer());
  PrintVolumeNow(session, ended.volumes(0));
}

/// Where `begun` says that the server does not have the file: hands it over, and has `work` read
/// that. Null if it cannot, with the better error of the two in *begun.
std::unique_ptr<FileDeposit> HandOver(const Session& session, const std::string& path,
                                      grpc::Status* begun, v1::ImportJob* work) {
  if (!IsElsewhere(path, *begun)) return nullptr;
  grpc::Status handed;
  auto deposit = FileDeposit::Make(session, path, &handed);
  const std::string reason = ReasonOf(handed);
  if (deposit == nullptr) {
    if (reason != "NOT_LOCAL" && reason != "HANDOFF_DISABLED") *begun = handed;
    return nullptr;
  }
  work->clear_path();
  work->set_deposit(deposit->ticket());
  return deposit;
}

void Plan(Session& session, const ImportFlags& flags, v1::JobSpec spec) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = spec;
  v1::PlanJobResponse answer;
  grpc::Status planned = v1::JobService::NewStub(session.channel())
                             ->PlanJob(session.Context().get(), request, &answer);
  const auto deposit = HandOver(session, flags.path, &planned, spec.mutable_volume_import());
  (void)flags.job.Submit(session, spec);
}

void Import(Session& session, const ImportFlags& flags) {
  v1::JobSpec spec = flags.job.Spec();
  *spec.mutable_volume_import() = flags.Make();
  if (flags.ttl_s != 0) *spec.mutable_ttl() = DurationOf(flags.ttl_s);
  if (flags.job.plan) return Plan(session, flags, std::move(spec));
  v1::ImportVolumeRequest request;
  *request.mutable_volume_import() = spec.volume_import();
  request.set_title(spec.title());
  *request.mutable_labels() = spec.labels();
  request.set_priority(spec.priority());
  request.set_device(spec.device());
  request.set_group(spec.group());
  if (spec.has_ttl()) *request.mutable_ttl() = spec.ttl();
  request.set_request_id(flags.job.request_id);
  request.mutable_wait();  // answer as soon as it has begun
  InterruptibleWork work(session);
  v1::ImportVolumeResponse answer;
  const auto stub = v1::IngestService::NewStub(session.channel());
  grpc::Status begun = stub->ImportVolume(session.Context().get(), request, &answer);
  const auto deposit =  // until the import has begun
      HandOver(session, flags.path, &begun, request.mutable_volume_import());
  if (deposit != nullptr) begun = stub->ImportVolume(session.Context().get(), request, &answer);
  work.Begun(answer.operation().name());
  if (!Check(session, begun)) return TellWhere(flags.path, begun);
  const auto ended = FollowOperation(session, answer.operation(), "importing");
  if (!ended.has_value()) {
    if (work.interrupted()) session.exit_code = kInterrupted;
    return;
  }
  if (work.interrupted())
    std::cerr << "octavo: it was too late to cancel: importing has succeeded\n";
  PrintImported(session, *ended);
}

}  // namespace

void AddVolumeImportCommand(CLI::App* volume, Session& session) {
  auto* command = volume->add_subcommand("import",
                                         "make a held volume, or a buffer, of a file on the "
                                         "server: one that a commit wrote, or a file "
                                         "of another program");
  auto flags = std::make_shared<ImportFlags>();
  command
      ->add_option(
          "path", flags->path,
          "a file or folder below one of the server's replay roots, or, of a server on this "
          "host with a hand-over socket, any: what a commit wrote, in any format; or OME-Zarr, "
          "Zarr, .npy, TIFF (OME, ImageJ, a folder), NIfTI, NRRD, HDF5, "
          "MATLAB, a folder of linumpy, raw numbers")
      ->required();
  flags->source.AddTo(command);
  command
      ->add_option("--box", flags->box,
                   "a part of it: start and count along the volume's axes, y,x,z,ny,nx,nz")
      ->delimiter(',')
      ->expected(6);
  command
      ->add_option("--value", flags->value, "what the numbers are: " + Listed(WordsOf<v1::Value>()))
      ->check(OneOf(WordsOf<v1::Value>()));
  command
      ->add_option("--quantity", flags->quantity,
                   "the same for other quantities: " + Listed(WordsOf<v1::Quantity>()))
      ->check(OneOf(WordsOf<v1::Quantity>()));
  command->add_flag(
      "--to-buffer", flags->to_buffer,
      "make a buffer of it (octavo buffer list), its numbers alone, instead of a volume");
  command->add_option(
      "--ttl", flags->ttl_s,
      "seconds after which the volume is discarded, or the buffer destroyed if it is "
      "not used (default: never)");
  flags->job.AddSharedTo(command);
  command->callback([&session, flags] { Import(session, *flags); });
}

}  // namespace octavo::cli
