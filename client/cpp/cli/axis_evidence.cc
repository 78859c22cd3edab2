#include "client/cpp/cli/axis_evidence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

namespace octavo::cli {
namespace {

/// The job that prepares the two projections alone, as the job of `spec` does, but for the steps
/// that need neighbouring projections.
v1::JobSpec SpecOfPair(const v1::JobSpec& spec, const v1::TomographyReport& report) {
  v1::JobSpec pair;
  pair.set_device(spec.device());
  pair.set_title("opposite projections");
  pair.set_orphan(v1::ORPHAN_DISCARD);
  v1::TomographyJob& to = *pair.mutable_tomography();
  to = spec.tomography();
  const auto [first, second] =
      std::minmax({report.opposite_projections(0), report.opposite_projections(1)});
  to.mutable_projections()->set_begin(first);
  to.mutable_projections()->set_end(second + 1);
  to.mutable_projections()->set_step(second - first);
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
  if (report.axis_line().turned_degrees() != 0)
    to.mutable_preparation()->set_roll_degrees(report.axis_line().turned_degrees());
  return pair;
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

// [row, 2, column], f32.
std::optional<OppositePair> ReadPair(Session& session, const std::string& name) {
  const auto stub = v1::VolumeService::NewStub(session.channel());
  v1::GetVolumeRequest get;
  get.set_name(name);
  v1::GetVolumeResponse answer;
  if (!Check(session, stub->GetVolume(session.Context().get(), get, &answer))) return std::nullopt;
  grpc::ClientContext context;
  v1::ReadVolumeRequest request;
  request.set_name(name);
  const auto reader = stub->ReadVolume(&context, request);
  std::string bytes;
  for (v1::ReadVolumeResponse part; reader->Read(&part);) bytes += part.data();
  if (!Check(session, reader->Finish())) return std::nullopt;
  OppositePair pair{.rows = answer.volume().shape(0),
                    .columns = answer.volume().shape(2),
                    .first = {},
                    .second = {},
                    .axes = {}};
  const auto columns = static_cast<size_t>(pair.columns);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  if (values.size() != static_cast<size_t>(pair.rows) * 2 * columns) {
    std::cerr << "octavo: " << name << " has " << answer.volume().shape(1)
              << " projections in place of the two that are half a turn apart\n";
    session.exit_code = kFailed;
    return std::nullopt;
  }
  for (size_t at = 0; at < values.size(); at += 2 * columns) {
    const auto row = values.begin() + static_cast<std::ptrdiff_t>(at), middle = row + pair.columns;
    pair.first.insert(pair.first.end(), row, middle);
    pair.second.insert(pair.second.end(), middle, middle + pair.columns);
  }
  return pair;
}

void DiscardPair(Session& session, const std::string& name) {
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

std::optional<OppositePair> PairOf(Session& session, const v1::JobSpec& spec, const v1::Job& job) {
  const v1::TomographyReport& report = job.tomography();
  OwnSession own(session, "octavo recon --axis-png");
  if (own.secret().empty()) return std::nullopt;
  const std::optional<v1::Job> made = RunQuietly(session, SpecOfPair(spec, report), own.secret());
  if (!made.has_value()) return std::nullopt;
  std::optional<OppositePair> pair = ReadPair(session, made->volumes(0));
  DiscardPair(session, made->volumes(0));
  if (!pair.has_value()) return std::nullopt;
  // The projections lie in the order of the file.
  if (report.opposite_projections(0) > report.opposite_projections(1))
    std::swap(pair->first, pair->second);
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

}  // namespace

bool ShowAxis(Session& session, const v1::JobSpec& spec, const v1::Job& job,
              const std::string& png) {
  const v1::TomographyReport& report = job.tomography();
  if (report.centers().empty()) {
    std::cerr << "octavo: --axis-png: the job tells no axis\n";
    session.exit_code = kFailed;
    return false;
  }
  std::optional<OppositePair> pair;
  if (report.opposite_projections_size() == 2) {
    pair = PairOf(session, spec, job);
    if (!pair.has_value()) return false;
  }
  if (!pair.has_value() && report.scores().empty() && report.axis_line().groups().empty()) {
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
