#include "client/cpp/cli/axis_evidence.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/axis_picture.h"
#include "client/cpp/cli/own_session.h"
#include "client/cpp/cli/seam_picture.h"
#include "client/cpp/cli/trials.h"

namespace octavo::cli {
namespace {

/// A job that prepares a part of what the job of `spec` does, and reconstructs nothing, without the
/// steps that need neighbouring projections.
v1::JobSpec SpecOfPart(const v1::JobSpec& spec, const char* title) {
  v1::JobSpec part;
  part.set_device(spec.device());
  part.set_title(title);
  part.set_orphan(v1::ORPHAN_DISCARD);
  v1::TomographyJob& to = *part.mutable_tomography();
  to = spec.tomography();
  to.set_output(v1::TOMOGRAPHY_OUTPUT_SINOGRAMS);
  to.clear_center();
  to.clear_reconstruction();
  to.clear_initial_volume();
  to.clear_slices_per_batch();
  to.clear_place();
  to.clear_samples();
  to.clear_series();
  to.clear_half_turn();
  to.mutable_preparation()->clear_rings();
  to.mutable_preparation()->clear_bin_angles();
  to.mutable_preparation()->clear_stitching();
  return part;
}

/// That of two opposite projections, of which `report` tells.
v1::JobSpec SpecOfPair(const v1::JobSpec& spec, const v1::TomographyReport& report) {
  v1::JobSpec pair = SpecOfPart(spec, "opposite projections");
  v1::TomographyJob& to = *pair.mutable_tomography();
  const auto [first, second] =
      std::minmax({report.opposite_projections(0), report.opposite_projections(1)});
  to.mutable_projections()->set_begin(first);
  to.mutable_projections()->set_end(second + 1);
  to.mutable_projections()->set_step(second - first);
  if (report.axis_line().turned_degrees() != 0)
    to.mutable_preparation()->set_roll_degrees(report.axis_line().turned_degrees());
  return pair;
}

/// That of the first projection.
v1::JobSpec SpecOfFirst(const v1::JobSpec& spec) {
  v1::JobSpec one = SpecOfPart(spec, "rows of a projection");
  v1::IndexRange& projections = *one.mutable_tomography()->mutable_projections();
  projections.set_end(projections.begin() + 1);
  projections.clear_step();
  one.mutable_tomography()->mutable_preparation()->clear_row_drift();
  return one;
}

/// That of the middle one of `slices` rows, in all projections.
v1::JobSpec SpecOfRow(const v1::JobSpec& spec, int64_t slices) {
  v1::JobSpec row = SpecOfPart(spec, "halves of a turn");
  v1::TomographyJob& to = *row.mutable_tomography();
  const int64_t bin = std::max(1U, to.preparation().bin_rows()),
                step = std::max(1U, to.rows().step()),
                begin = to.rows().begin() + slices / 2 * bin * step;
  to.mutable_rows()->set_begin(static_cast<uint32_t>(begin));
  to.mutable_rows()->set_end(static_cast<uint32_t>(begin + bin));
  to.mutable_rows()->clear_step();
  return row;
}

/// The job at its end; nothing after a problem, which is printed.
std::optional<v1::Job> RunQuietly(Session& session, const v1::JobSpec& spec,
                                  const std::string& secret) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_session_secret(secret);
  v1::SubmitJobResponse answer;
  if (!Check(session, stub->SubmitJob(session.Context().get(), request, &answer)))
    return std::nullopt;
  grpc::ClientContext context;
  v1::WatchJobRequest watch;
  watch.set_name(answer.job().name());
  const auto reader = stub->WatchJob(&context, watch);
  v1::Job job;
  for (v1::WatchJobResponse state; reader->Read(&state);) job.Swap(state.mutable_job());
  if (!Check(session, reader->Finish())) return std::nullopt;
  if (job.state() == v1::JOB_STATE_DONE && !job.volumes().empty()) return job;
  std::cerr << "octavo: the opposite projections could not be prepared: " << job.reason() << "\n";
  session.exit_code = kFailed;
  return std::nullopt;
}

/// Sinograms [row, projection, column].
struct Sinograms {
  int64_t rows = 0, projections = 0, columns = 0;
  std::vector<float> values;
};

std::optional<Sinograms> Read(Session& session, const std::string& name) {
  v1::GetVolumeRequest get;
  get.set_name(name);
  v1::GetVolumeResponse answer;
  if (!Check(session, v1::VolumeService::NewStub(session.channel())
                          ->GetVolume(session.Context().get(), get, &answer)))
    return std::nullopt;
  const v1::Volume& volume = answer.volume();
  Sinograms made{.rows = volume.shape(0),
                 .projections = volume.shape(1),
                 .columns = volume.shape(2),
                 .values = ReadBox(session, volume, {0, 0, 0},
                                   {volume.shape(0), volume.shape(1), volume.shape(2)})};
  if (made.values.empty()) return std::nullopt;
  return made;
}

void Discard(Session& session, const std::string& name) {
  v1::DiscardVolumeRequest request;
  request.set_name(name);
  v1::DiscardVolumeResponse gone;
  (void)v1::VolumeService::NewStub(session.channel())
      ->DiscardVolume(session.Context().get(), request, &gone);
}

/// What the curve says. `about`: the difference about the axis, NaN = the two hardly overlap there;
/// `bin`: columns of the detector in one of the curve.
std::string DifferenceText(const DifferenceCurve& curve, double about, double bin) {
  if (!curve.least_at.has_value()) {
    return absl::StrFormat("hardly overlap about it, nor up to %g columns from it",
                           curve.offsets.back() * bin);
  }
  const std::string begin = std::isnan(about) ? "hardly overlap about it"
                                              : absl::StrFormat("differ by %.4f about it", about);
  if (!curve.least_at_end) {
    return absl::StrFormat("%s, and least about %+.2f columns from it", begin,
                           *curve.least_at * bin);
  }
  return absl::StrFormat(
      "%s, and least at the end of what was compared, %+.2f columns from it: the axis may lie "
      "farther off",
      begin, *curve.least_at * bin);
}

/// What a job prepares, with its report, if `report` is given. Nothing is left on the server.
std::optional<Sinograms> Prepare(Session& session, const OwnSession& own, const v1::JobSpec& spec,
                                 v1::TomographyReport* report = nullptr) {
  const std::optional<v1::Job> made = RunQuietly(session, spec, own.secret());
  if (!made.has_value()) return std::nullopt;
  if (report != nullptr) *report = made->tomography();
  std::optional<Sinograms> sinograms = Read(session, made->volumes(0));
  Discard(session, made->volumes(0));
  return sinograms;
}

/// The opposite projections of which `report` tells, without their axes.
std::optional<OppositePair> PairOf(Session& session, const OwnSession& own, const v1::JobSpec& spec,
                                   const v1::TomographyReport& report) {
  const std::optional<Sinograms> both = Prepare(session, own, SpecOfPair(spec, report));
  if (!both.has_value()) return std::nullopt;
  if (both->projections != 2) {
    std::cerr << "octavo: --axis-png: the job made " << both->projections
              << " projections in place of the two that are half a turn apart\n";
    session.exit_code = kFailed;
    return std::nullopt;
  }
  OppositePair pair{
      .rows = both->rows, .columns = both->columns, .first = {}, .second = {}, .axes = {}};
  for (auto row = both->values.begin(); row != both->values.end(); row += 2 * pair.columns) {
    const auto middle = row + pair.columns;
    pair.first.insert(pair.first.end(), row, middle);
    pair.second.insert(pair.second.end(), middle, middle + pair.columns);
  }
  // The projections lie in the order of the file.
  if (report.opposite_projections(0) > report.opposite_projections(1))
    std::swap(pair.first, pair.second);
  return pair;
}

std::optional<OppositePair> PairOf(Session& session, const v1::JobSpec& spec, const v1::Job& job) {
  const v1::TomographyReport& report = job.tomography();
  OwnSession own(session, "octavo recon --axis-png");
  if (own.secret().empty()) return std::nullopt;
  std::optional<OppositePair> pair = PairOf(session, own, spec, report);
  if (!pair.has_value()) return std::nullopt;
  // Columns of the whole detector as those of the pair.
  const auto bin = std::max<double>(1, spec.tomography().preparation().bin_columns());
  const double begin = spec.tomography().columns().begin();
  for (int64_t row = 0; row < pair->rows; ++row) {
    const double center =
        report.centers(report.centers_size() == pair->rows ? static_cast<int>(row) : 0);
    pair->axes.push_back((center - begin - 0.5 * (bin - 1)) / bin);
  }
  return pair;
}

/// The evidence of the overlap of two halves. The job tells none, and no two opposite projections:
/// both are of the joined scan, so small jobs look at the scan as it is.
bool ShowSeam(Session& session, const v1::JobSpec& spec, const v1::Job& job,
              const std::string& png) {
  const auto& stitching = spec.tomography().preparation().stitching();
  OwnSession own(session, "octavo recon --axis-png");
  if (own.secret().empty()) return false;
  const std::optional<Sinograms> first = Prepare(session, own, SpecOfFirst(spec));
  if (!first.has_value()) return false;
  v1::TomographyReport report;
  const std::optional<Sinograms> row = Prepare(session, own, SpecOfRow(spec, first->rows), &report);
  if (!row.has_value()) return false;
  // Each projection of the joined scan is a mean of so many of these.
  const int64_t bin = std::max(1U, spec.tomography().preparation().bin_angles());
  const int64_t half_turn =
      stitching.half_turn() != 0 ? stitching.half_turn() * bin : row->projections / bin / 2 * bin;
  if (report.opposite_projections_size() != 2 || half_turn == 0 ||
      2 * half_turn > row->projections) {
    std::cerr << "octavo: --axis-png: no two projections of the scan are half a turn apart\n";
    session.exit_code = kFailed;
    return false;
  }
  std::optional<OppositePair> pair = PairOf(session, own, spec, report);
  if (!pair.has_value()) return false;
  const double found = job.tomography().overlap(),
               overlap = found > 0 ? found : stitching.overlap();
  Seam seam{.axis_right = stitching.axis_right(), .overlap = overlap, .pair = *std::move(pair)};
  const double from_end = 0.5 * (overlap - 1);
  seam.pair.axes.assign(
      static_cast<size_t>(seam.pair.rows),
      seam.axis_right ? static_cast<double>(seam.pair.columns - 1) - from_end : from_end);
  seam.pair.least_part = 0;  // however narrow the overlap is
  const OverlapCurve curve = CurveOf(row->values, row->columns, half_turn, seam.axis_right);
  if (!WriteSeamPicture(png, seam, curve, report.opposite_degrees())) {
    std::cerr << "octavo: could not write " << png << "\n";
    session.exit_code = kFailed;
    return false;
  }
  const double difference = seam.pair.Difference(0);
  if (session.json) {
    std::cout << nlohmann::json({{"axis_png", png},
                                 {"overlap", overlap},
                                 {"overlap_correlation", curve.At(overlap)},
                                 {"overlap_best", curve.Best()},
                                 {"opposite_projections",
                                  {report.opposite_projections(0), report.opposite_projections(1)}},
                                 {"opposite_difference", difference}})
                     .dump()
              << "\n";
    return true;
  }
  std::cout << png
            << absl::StrFormat(
                   "  evidence of the overlap: %.2f columns, correlation %.4f; greatest at %g; "
                   "projections %d and %d, %.2f degrees apart, differ by %.4f in it\n",
                   overlap, curve.At(overlap), curve.Best(), report.opposite_projections(0),
                   report.opposite_projections(1), report.opposite_degrees(), difference);
  return true;
}

}  // namespace

bool ShowAxis(Session& session, const v1::JobSpec& spec, const v1::Job& job,
              const std::string& png) {
  const v1::TomographyReport& report = job.tomography();
  if (report.centers().empty()) {
    std::cerr << "octavo: --axis-png: the job tells no axis\n";
    session.exit_code = kFailed;
    return false;
  }
  if (spec.tomography().preparation().has_stitching()) return ShowSeam(session, spec, job, png);
  std::optional<OppositePair> pair;
  if (report.opposite_projections_size() == 2) {
    pair = PairOf(session, spec, job);
    if (!pair.has_value()) return false;
  }
  const bool turns = std::any_of(report.half_turns().begin(), report.half_turns().end(),
                                 [](const auto& half) { return std::isfinite(half.score()); });
  if (!pair.has_value() && report.scores().empty() && report.axis_line().groups().empty() &&
      !turns) {
    std::cerr
        << "octavo: --axis-png: there is no evidence of the axis: it was not searched, and no "
           "two projections are half a turn apart\n";
    session.exit_code = kFailed;
    return false;
  }
  const double bin = std::max<double>(1, spec.tomography().preparation().bin_columns());
  if (!WriteAxisPicture(png, report, pair.has_value() ? &*pair : nullptr, bin)) {
    std::cerr << "octavo: could not write " << png << "\n";
    session.exit_code = kFailed;
    return false;
  }
  const DifferenceCurve curve = pair.has_value() ? CurveOf(*pair) : DifferenceCurve{};
  if (session.json) {
    nlohmann::json told = {{"axis_png", png}};
    if (pair.has_value()) {
      told["opposite_projections"] = {report.opposite_projections(0),
                                      report.opposite_projections(1)};
      // null where they hardly overlap
      told["opposite_difference"] = pair->Difference(0);
      told["opposite_least_at"] = curve.least_at.has_value() ? nlohmann::json(*curve.least_at * bin)
                                                             : nlohmann::json(nullptr);
      told["opposite_least_at_end"] = curve.least_at_end;
    }
    std::cout << told.dump() << "\n";
    return true;
  }
  std::cout << png << "  evidence of the axis";
  if (pair.has_value()) {
    std::cout << absl::StrFormat(": projections %d and %d, %.2f degrees apart, ",
                                 report.opposite_projections(0), report.opposite_projections(1),
                                 report.opposite_degrees())
              << DifferenceText(curve, pair->Difference(0), bin);
  } else {
    std::cout << ": no two projections are half a turn apart";
  }
  std::cout << "\n";
  return true;
}

}  // namespace octavo::cli
