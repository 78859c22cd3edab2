#include "client/cpp/cli/recon_preview.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/field_flags.h"
#include "client/cpp/cli/job_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/trials.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

// The job of a preview: what the preparation makes, in numbers that show all of it. The half turn
// of the run may be known only from all its rows, so a preview shows the whole scan.
v1::JobSpec PreparationOf(v1::JobSpec spec) {
  spec.clear_commit();
  spec.clear_ttl();
  spec.clear_results();
  spec.set_orphan(v1::ORPHAN_DISCARD);
  v1::TomographyJob& job = *spec.mutable_tomography();
  job.set_output(v1::TOMOGRAPHY_OUTPUT_SINOGRAMS);
  job.clear_center();
  job.clear_reconstruction();
  job.clear_try_centers();
  job.clear_initial_volume();
  job.clear_slices_per_batch();
  job.clear_place();
  job.clear_samples();
  job.clear_series();
  job.clear_half_turn();
  return spec;
}

// Of one projection of the scan.
v1::JobSpec ProjectionOf(const v1::JobSpec& run, std::optional<uint32_t> index) {
  v1::JobSpec spec = PreparationOf(run);
  v1::TomographyJob& job = *spec.mutable_tomography();
  v1::IndexRange& projections = *job.mutable_projections();
  const uint32_t one = index.value_or(projections.begin());
  projections.set_begin(one);
  projections.set_end(one + 1);
  projections.clear_step();
  v1::TomographyPreparation& preparation = *job.mutable_preparation();
  if (!preparation.already_sinograms()) preparation.set_logarithm(false);
  preparation.clear_bin_angles();
  preparation.clear_rings();
  preparation.clear_stitching();
  preparation.clear_beam_hardening();
  preparation.clear_row_drift();
  return spec;
}

// Of some rows of the detector. The overlap of two halves is found only with the axis.
v1::JobSpec SinogramOf(const v1::JobSpec& run, const v1::IndexRange& rows) {
  v1::JobSpec spec = PreparationOf(run);
  v1::TomographyJob& job = *spec.mutable_tomography();
  *job.mutable_rows() = rows;
  if (job.preparation().stitching().overlap() == 0) job.mutable_preparation()->clear_stitching();
  return spec;
}

/// Makes a folder and those above it. Those that are empty in the end are removed again.
class NewFolders {
 public:
  /// Sets `error` if the folder cannot be made.
  NewFolders(const std::filesystem::path& folder, std::error_code& error) {
    std::filesystem::path at = std::filesystem::absolute(folder, error).lexically_normal();
    if (at.filename().empty()) at = at.parent_path();  // of "folder/"
    std::error_code ignored;
    for (auto path = at; path.has_relative_path() &&
                         !std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
         path = path.parent_path())
      made_.push_back(path);
    std::filesystem::create_directories(folder, error);
  }
  ~NewFolders() {
    std::error_code ignored;  // of a folder that holds something
    for (const std::filesystem::path& path : made_) std::filesystem::remove(path, ignored);
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // the deepest first
};

}  // namespace

ReconPreview::ReconPreview(Session& session, const ReconFlags& flags)
    : session_(session), flags_(flags), own_(session, "octavo recon --preview") {}

bool ReconPreview::Make(const std::string& file) {
  if (own_.secret().empty()) return false;
  const v1::JobSpec run = flags_.Spec(file);
  const std::filesystem::path folder(flags_.preview());
  std::error_code error;
  const NewFolders made(folder, error);
  if (error) {
    throw CLI::ValidationError("--preview",
                               absl::StrCat("is '", flags_.preview(),
                                            "', which cannot be a folder here: ", error.message()));
  }
  const std::string of_projection = flags_.PreviewOf(file, "projection"),
                    of_sinogram = flags_.PreviewOf(file, "sinogram");
  for (const std::string& path : {of_projection, of_sinogram}) CheckWritable("--preview", path);

  const v1::JobSpec of_one = ProjectionOf(run, flags_.preview_projection());
  const auto frame = Prepare(file, of_one);
  if (!frame.has_value()) return false;
  const v1::IndexRange rows = RowsOf(run.tomography(), frame->shape(0));
  const auto projection = Write(*frame, of_projection);
  Discard(*frame);
  if (!projection.has_value()) return false;
  const auto lines = Prepare(file, SinogramOf(run, rows));
  if (!lines.has_value()) return false;
  const auto sinogram = Write(*lines, of_sinogram);
  Discard(*lines);
  if (!sinogram.has_value()) return false;

  const uint32_t index = of_one.tomography().projections().begin();
  const bool apart = run.tomography().preparation().has_stitching() &&
                     run.tomography().preparation().stitching().overlap() == 0;
  const bool halved = run.tomography().half_turn() > v1::HALF_TURN_ALL;
  if (session_.json) {
    const auto object = [](const Picture& picture) {
      return nlohmann::json{{"png", picture.path},
                            {"quantity", picture.quantity},
                            {"black", picture.window.black},
                            {"white", picture.window.white}};
    };
    nlohmann::json both = {{"scan", file},
                           {"projection", object(*projection)},
                           {"sinogram", object(*sinogram)},
                           {"warnings", nlohmann::json::array()}};
    both["projection"]["index"] = index;
    both["sinogram"]["row"] = rows.begin();
    both["sinogram"]["angles"] = sinogram->rows;
    for (const std::string& warning : job_.warnings()) both["warnings"].push_back(warning);
    std::cout << both.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return true;
  }
  const auto window = [](const Picture& picture) {
    return absl::StrFormat("%s, black %.4g, white %.4g", picture.quantity,
                           static_cast<double>(picture.window.black),
                           static_cast<double>(picture.window.white));
  };
  std::cout << projection->path << "  projection " << index << ", " << projection->rows
            << " rows of " << projection->columns << " columns; " << window(*projection) << "\n"
            << sinogram->path << "  sinogram of row " << rows.begin();
  if (rows.end() > rows.begin() + 1) std::cout << " to " << rows.end() - 1;
  std::cout << ", " << sinogram->rows << " angles of " << sinogram->columns << " columns"
            << (apart ? ", not stitched (--overlap is not given)" : "")
            << (halved ? ", of the whole scan (--half-turn is of the run)" : "") << "; "
            << window(*sinogram) << "\n"
            << std::flush;
  if (flags_.preview_only() || !flags_.HasPlace()) {  // else the run tells them
    for (const std::string& warning : job_.warnings())
      std::cerr << "octavo: " << file << ": warning: " << WithFlags(session_, warning) << "\n";
  }
  return true;
}

v1::IndexRange ReconPreview::RowsOf(const v1::TomographyJob& job, int64_t slices) const {
  const int64_t begin = job.rows().begin(), bin = std::max(1U, job.preparation().bin_rows()),
                step = std::max(1U, job.rows().step()), end = begin + slices * bin * step;
  const int64_t middle = begin + slices / 2 * bin * step,
                row = flags_.preview_row().value_or(middle);
  if (row < begin || row >= end) {
    throw CLI::ValidationError("--preview-row",
                               absl::StrCat("is ", row, "; allowed ", begin, " to ", end - 1,
                                            ", rows of the detector that are reconstructed"));
  }
  const int64_t first = begin + (row - begin) / bin * bin;
  v1::IndexRange rows;
  rows.set_begin(static_cast<uint32_t>(first));
  rows.set_end(static_cast<uint32_t>(first + bin));
  return rows;
}

std::optional<v1::Volume> ReconPreview::Prepare(const std::string& file, const v1::JobSpec& spec) {
  InterruptibleWork interruptible(session_);
  const auto jobs = v1::JobService::NewStub(session_.channel());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_session_secret(own_.secret());
  v1::SubmitJobResponse submitted;
  const grpc::Status status = jobs->SubmitJob(session_.Context().get(), request, &submitted);
  job_.Swap(submitted.mutable_job());
  interruptible.Begun(job_.operation());
  if (!status.ok()) {
    if (flags_.files().size() > 1) std::cerr << "octavo: " << file << ":\n";
    (void)CheckJob(session_, spec, status);
    if (flags_.preview_projection().has_value() &&
        absl::StrContains(status.error_message(), "tomography.projections.begin"))
      std::cerr << "  of --preview-projection " << *flags_.preview_projection() << "\n";
    return std::nullopt;
  }
  v1::WatchJobRequest watch;
  watch.set_name(job_.name());
  grpc::ClientContext context;
  const auto reader = jobs->WatchJob(&context, watch);
  {
    ProgressBar bar("preview");
    for (v1::WatchJobResponse step; reader->Read(&step);) {
      job_.Swap(step.mutable_job());
      if (job_.state() == v1::JOB_STATE_RUNNING) bar.Update(job_.fraction(), file, 0);
    }
  }
  if (!Check(session_, reader->Finish())) return std::nullopt;
  if (interruptible.interrupted()) {
    session_.exit_code = kInterrupted;
    return std::nullopt;
  }
  if (job_.state() != v1::JOB_STATE_DONE) {
    std::cerr << "octavo: " << file << ": the preview " << InWords(job_.state()) << ": "
              << Printable(job_.reason()) << FlagsFor(session_.app, "", job_.reason()) << "\n";
    session_.exit_code = kFailed;
    return std::nullopt;
  }
  v1::GetVolumeRequest get;
  get.set_name(job_.volumes(0));
  v1::GetVolumeResponse answer;
  if (!Check(session_, v1::VolumeService::NewStub(session_.channel())
                           ->GetVolume(session_.Context().get(), get, &answer)))
    return std::nullopt;
  return std::move(*answer.mutable_volume());
}

std::optional<ReconPreview::Picture> ReconPreview::Write(const v1::Volume& volume,
                                                         const std::string& path) {
  const std::vector<float> values =
      ReadBox(session_, volume, {0, 0, 0}, {volume.shape(0), volume.shape(1), volume.shape(2)});
  if (values.empty()) return std::nullopt;
  Picture picture{.path = path,
                  .quantity = InWords(volume.quantity()),
                  .rows = volume.shape(0) * volume.shape(1),
                  .columns = volume.shape(2),
                  .window = WindowOf(values)};
  if (WritePng(path, GreysOf(values, picture.window), picture.rows, picture.columns))
    return picture;
  std::cerr << "octavo: could not write " << path << "\n";
  session_.exit_code = kFailed;
  return std::nullopt;
}

void ReconPreview::Discard(const v1::Volume& volume) {
  v1::DiscardVolumeRequest request;
  request.set_name(volume.name());
  v1::DiscardVolumeResponse gone;
  Check(session_, v1::VolumeService::NewStub(session_.channel())
                      ->DiscardVolume(session_.Context().get(), request, &gone));
}

}  // namespace octavo::cli
