#include "server/tomography/axis_finder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/axis.h"
#include "gpu/tomography/dead_columns.h"
#include "server/base/errors.h"
#include "server/tomography/axis.h"
#include "server/tomography/prepare_counts.h"

namespace octavo::tomography {
namespace {

constexpr double kSearchPart = 0.05;  // of the whole job, for its bar

model::CenterSource SourceOf(CenterMethod method) {
  switch (method) {
    case CenterMethod::kVo: return model::CenterSource::kVo;
    case CenterMethod::kEntropy: return model::CenterSource::kEntropy;
    case CenterMethod::kPhaseCorrelation: return model::CenterSource::kPhaseCorrelation;
    case CenterMethod::kPairs: return model::CenterSource::kPairs;
  }
  return model::CenterSource::kNone;
}

}  // namespace

absl::StatusOr<double> AxisFinder::Find(ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  object.centers = layout.GivenCenters();
  report_.center_source = layout.GivenSource();
  if (report_.center_source == model::CenterSource::kFile)
    run_.Log(absl::StrCat("axis at column ", object.centers[0], ", as the file says"));
  const bool find = spec_.center.find && !layout.stitched() && layout.tried().empty();
  if (layout.makes_sinograms() && !find && !layout.stitched()) {
    report_.center_source = model::CenterSource::kNone;  // nobody needs it
    return 0;
  }
  double begun = 0;
  if (find || layout.overlap_unknown()) {
    begun = kSearchPart;
    run_.Stage(job::JobStage::kAxis, 1, 0, begun);
    OCTAVO_RETURN_IF_ERROR(Search(object, layout.overlap_unknown()));
  }
  if (layout.stitched()) {
    object.centers = {layout.PreparedCenterOf(0)};
    report_.center_source = model::CenterSource::kOverlap;
    run_.Log(absl::StrCat("axis at column ", object.centers[0], " of the joined projections"));
  }
  if (!find) OCTAVO_RETURN_IF_ERROR(Check(object));
  report_.centers = object.centers;
  if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  return begun;
}

absl::Status AxisFinder::Search(ScannedObject& object, bool overlap) {
  const TomographyLayout& layout = object.layout;
  const BatchRows rows = layout.RowsOf(layout.center_slice(), layout.search_slices());
  OCTAVO_ASSIGN_OR_RETURN(const PreparedRows prepared,
                          rows_.Prepare(layout, object.input, rows, overlap));
  Count(prepared.counts, report_);
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int64_t> dead, Mend(prepared));
  if (!dead.empty()) {
    run_.Warn(
        absl::StrFormat("%d %s dead in the rows that say where the axis is, or far from their "
                        "neighbours in all projections; the first is "
                        "column %.0f. The search leaves them out, the picture does not: ring "
                        "removal of dead stripes (--rings dead) mends them there.",
                        dead.size(), dead.size() == 1 ? "column is" : "columns are",
                        layout.RawCenter(static_cast<double>(dead.front()))));
  }
  OCTAVO_RETURN_IF_ERROR(overlap ? FindOverlap(prepared, object) : FindCenter(prepared, object));
  run_.Free(prepared.data);
  run_.Step(1, std::numeric_limits<double>::quiet_NaN());
  ForgetCounts(report_);  // they are counted again
  return absl::OkStatus();
}

// Values that no column of the detector saw are no part of the object, and would bias the axis.
absl::StatusOr<std::vector<int64_t>> AxisFinder::Mend(const PreparedRows& rows) {
  const PreparedShape& s = rows.shape;
  return MendDeadColumns(run_.stream(), {rows.data, s.elements()}, s.slices, s.angles, s.detectors,
                         run_.device(), Until(stop_));
}

// Compares an axis that the job does not search with a few rows: gives a warning if they show
// clearly that it is elsewhere, and never ends the job.
absl::Status AxisFinder::Check(const ScannedObject& object) {
  if (check_slices_ == 0) return absl::OkStatus();
  const TomographyLayout& layout = object.layout;
  const auto prepared = rows_.Prepare(layout, object.input,
                                      layout.RowsOf(layout.center_slice(), check_slices_), false);
  absl::Status checked = prepared.status();
  if (prepared.ok()) {
    checked = CheckIn(*prepared, object);
    run_.Free(prepared->data);
  }
  if (absl::IsCancelled(checked) || absl::IsUnavailable(checked)) return checked;
  if (!checked.ok()) run_.Log(absl::StrCat("the axis was not checked: ", checked.message()));
  return absl::OkStatus();
}

absl::Status AxisFinder::CheckIn(const PreparedRows& rows, const ScannedObject& object) {
  constexpr double kSure = 0.3;  // columns
  const TomographyLayout& layout = object.layout;
  OCTAVO_RETURN_IF_ERROR(Mend(rows).status());
  const AxisConfig config = layout.AxisCheck(rows.shape.slices);
  const double taken =
      object.centers[object.centers.size() == 1 ? 0 : static_cast<size_t>(layout.center_slice())];
  const auto elsewhere = [&](const CenterResult& found) {
    const double columns = 1 / config.agreement,
                 off = std::abs(layout.RawCenter(found.center) - taken);  // several if binned
    return found.determined && !found.at_edge && found.uncertainty * columns <= kSure &&
           off > 1 + 3 * found.uncertainty * columns;
  };
  const CenterInput input = {
      .data = rows.sinograms(), .angle_first = false, .goes_on = Until(stop_)};
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  // Try the cheap method first: usually it finds no contradiction.
  absl::StatusOr<AxisResult> axis = AxisResult{};
  const auto pairs = octavo::FindCenter(run_.stream(), config.search, input, run_.device());
  const bool look = pairs.ok() && elsewhere(*pairs);
  if (look) axis = FindAxis(run_.stream(), config, input, run_.device());
  run_.Discharge(bytes);
  OCTAVO_RETURN_IF_ERROR(pairs.status());
  OCTAVO_RETURN_IF_ERROR(axis.status());
  if (!look || !axis->agreed || !elsewhere(axis->found)) return absl::OkStatus();
  const AxisResult raw = layout.RawAxis(*axis);
  const std::string source = report_.center_source == model::CenterSource::kMiddle
                                 ? "The axis is taken in the middle,"
                             : report_.center_source == model::CenterSource::kFile
                                 ? "The axis is taken where the file says,"
                                 : "The axis is given as";
  run_.Warn(
      absl::StrFormat("%s column %.2f; opposite projections find it at %.2f +- %.2f: center auto "
                      "(--center auto) takes that.",
                      source, taken, raw.found.center, raw.found.uncertainty));
  return absl::OkStatus();
}

absl::Status AxisFinder::FindCenter(const PreparedRows& rows, ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  const AxisConfig config = layout.AxisSearch(rows.shape.slices);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  const auto found = FindAxis(
      run_.stream(), config,
      {.data = rows.sinograms(), .angle_first = false, .goes_on = Until(stop_)}, run_.device());
  run_.Discharge(bytes);
  if (!found.ok()) return AtAxisField(found.status());
  const AxisResult axis = layout.RawAxis(*found);
  object.centers = {axis.found.center};
  report_.center_source = SourceOf(axis.method);
  report_.tried_centers = axis.found.centers;
  report_.scores = axis.found.scores;
  report_.center_at_edge = axis.found.at_edge;
  if (axis.found.uncertainty > 0) report_.center_uncertainty = axis.found.uncertainty;
  if (axis.check.has_value()) {
    report_.center_check = *axis.check;
    report_.center_check_method = axis.check_method;
  }
  run_.Log(absl::StrFormat(
      "axis found at column %.3f by %s%s", object.centers[0], NameOf(axis.method),
      axis.check.has_value()
          ? absl::StrFormat(", at %.3f by %s", *axis.check, NameOf(axis.check_method))
          : ""));
  const double middle = 0.5 * static_cast<double>(config.search.detectors - 1);
  const auto column = [&](double off) {
    return layout.RawCenter(std::clamp(middle + off, 0.0, 2 * middle));
  };
  const auto [least, most] =
      std::minmax_element(config.search.angles_rad.begin(), config.search.angles_rad.end());
  const AxisRemarks remarks = RemarksOn(axis, column(config.search.search_min),
                                        column(config.search.search_max), *most - *least);
  for (const std::string& warning : remarks.warnings) run_.Warn(warning);
  return Doubt(remarks.doubts, object.centers);
}

// Doubts about the axis give warnings, or end the job.
absl::Status AxisFinder::Doubt(const std::vector<std::string>& doubts,
                               const std::vector<double>& centers) {
  if (spec_.center.fail_on_doubt && !doubts.empty()) {
    report_.centers = centers;
    run_.Found(report_);
    return WithInfo(
        absl::FailedPreconditionError(absl::StrCat("tomography.center: ", doubts.front())),
        {.reason = Reason::kAxisInDoubt, .field = "tomography.center", .numbers = {}});
  }
  for (const std::string& doubt : doubts) run_.Warn(doubt);
  return absl::OkStatus();
}

absl::Status AxisFinder::FindOverlap(const PreparedRows& rows, ScannedObject& object) {
  OverlapConfig config = object.layout.OverlapSearch();
  config.slices = rows.shape.slices;
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindOverlapBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  auto found = octavo::FindOverlap(run_.stream(), config,
                                   {.data = rows.sinograms(), .angle_first = false}, run_.device());
  run_.Discharge(bytes);
  if (!found.ok()) return base::AtField("tomography.preparation.stitching.", found.status());
  report_.overlap = found->overlap;
  report_.center_at_edge = found->at_edge;
  run_.Log(absl::StrFormat("overlap of %.2f columns, correlation %.4f", found->overlap,
                           found->correlation));
  OCTAVO_RETURN_IF_ERROR(Doubt(DoubtsOf(*found, config), object.centers));
  // The result keeps its planned size.
  model::TomographySpec spec = spec_;
  spec.reconstruction.image_size = object.layout.image_columns();
  OCTAVO_ASSIGN_OR_RETURN(object.layout,
                          TomographyLayout::Make(spec, object.input->info(), found->overlap));
  return absl::OkStatus();
}

}  // namespace octavo::tomography
