#include "server/tomography/axis_finder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

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

constexpr double kSearchPart = 0.05;                 // of the whole job, for its bar
constexpr double kDegrees = 180 / std::numbers::pi;  // of a radian
constexpr int64_t kLeastGroups = 3;                  // of rows, that agree on a line
// Of the axis in a group, in columns: that of methods which do not tell theirs, and the largest of
// one that counts.
constexpr double kUnknownUncertainty = 0.25, kMostUncertainty = 5;
constexpr double kMostResidual = 1;  // columns, in the mean: of a line
constexpr double kMostMixed = 2;     // rows, from one end of a row to the other

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
    const bool line = find && spec_.center.searches_line();
    const int64_t steps = line ? std::ssize(layout.search_groups()) + 1 : 1;
    run_.Stage(job::JobStage::kAxis, steps, 0, begun);
    OCTAVO_RETURN_IF_ERROR(line ? SearchLine(object) : Search(object, layout.overlap_unknown()));
    ForgetCounts(report_);  // they are counted again
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
  return SearchIn(object.layout.search_groups().front(), overlap, object);
}

absl::Status AxisFinder::SearchIn(const SliceGroup& group, bool overlap, ScannedObject& object) {
  OCTAVO_ASSIGN_OR_RETURN(const PreparedRows prepared, Mended(object, group, overlap));
  OCTAVO_RETURN_IF_ERROR(overlap ? FindOverlap(prepared, object) : FindCenter(prepared, object));
  run_.Free(prepared.data);
  run_.Step(++groups_done_, std::numeric_limits<double>::quiet_NaN());
  return absl::OkStatus();
}

// Sinograms without the columns that saw nothing. The caller frees them.
absl::StatusOr<PreparedRows> AxisFinder::Mended(const ScannedObject& object,
                                                const SliceGroup& group, bool overlap) {
  const TomographyLayout& layout = object.layout;
  OCTAVO_ASSIGN_OR_RETURN(
      const PreparedRows prepared,
      rows_.Prepare(layout, object.input, layout.RowsOf(group.first, group.count), overlap));
  Count(prepared.counts, report_);
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int64_t> dead, Mend(prepared));
  TellDead(dead, layout);
  return prepared;
}

void AxisFinder::TellDead(const std::vector<int64_t>& dead, const TomographyLayout& layout) {
  if (dead.empty() || told_dead_) return;
  told_dead_ = true;
  run_.Warn(
      absl::StrFormat("%d %s dead in the rows that say where the axis is, or far from their "
                      "neighbours in all projections; the first is "
                      "column %.0f. The search leaves them out, the picture does not: ring "
                      "removal of dead stripes (--rings dead) mends them there.",
                      dead.size(), dead.size() == 1 ? "column is" : "columns are",
                      layout.RawCenter(static_cast<double>(dead.front()))));
}

// Looks for the axis in groups of rows, lays a line through what they say, and looks once more, by
// several methods, where it is known best.
absl::Status AxisFinder::SearchLine(ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  const std::vector<SliceGroup> groups = layout.search_groups();
  std::vector<AxisPoint> points;
  model::AxisLineReport found;
  for (const SliceGroup& group : groups) {
    OCTAVO_ASSIGN_OR_RETURN(const CenterResult center, CenterIn(group, object));
    const AxisResult raw = layout.RawAxis({.found = center, .check = std::nullopt});
    const double uncertainty = raw.found.uncertainty;
    const BatchRows rows = layout.RowsOf(group.first, group.count);
    points.push_back(
        {.row = layout.RowOfSlice(static_cast<double>(group.first) +
                                  0.5 * static_cast<double>(group.count - 1)),
         .center = raw.found.center,
         .uncertainty = uncertainty > 0 ? uncertainty : kUnknownUncertainty,
         .determined = center.determined && !center.at_edge && uncertainty <= kMostUncertainty});
    found.groups.push_back(
        {.first_row = rows.first + rows.crop * rows.step,
         .rows = rows.step > 1 ? (rows.count - 1) * rows.step + 1 : rows.crop_rows,
         .center = raw.found.center,
         .uncertainty = points.back().uncertainty});
    run_.Step(++groups_done_, std::numeric_limits<double>::quiet_NaN());
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  }
  const std::optional<AxisLine> line = FitAxisLine(points);
  if (line.has_value()) {
    for (size_t i = 0; i < points.size(); ++i) {
      found.groups[i].used = line->used[i];
      found.groups[i].residual = points[i].center - line->At(points[i].row);
    }
    found.offset = line->offset;
    found.slope = line->slope;
    found.offset_uncertainty = line->offset_uncertainty;
    found.slope_uncertainty = line->slope_uncertainty;
    found.tilt_degrees = std::atan(line->slope) * kDegrees;
    found.residual_rms = line->residual_rms;
  }
  report_.axis_line = found;
  const int64_t agree = line.has_value() ? line->points_used : 0;
  // Without a line, the middle group says where the axis is, as for an axis that does not lean.
  size_t best = groups.size() / 2;
  for (size_t i = 0; agree >= kLeastGroups && i < groups.size(); ++i) {
    if (line->used[i] && (!line->used[best] || points[i].uncertainty < points[best].uncertainty))
      best = i;
  }
  OCTAVO_RETURN_IF_ERROR(SearchIn(groups[best], /*overlap=*/false, object));
  if (agree < kLeastGroups) {
    return Doubt({absl::StrFormat(
                     "The axis may lean: only %d of %d groups of rows show it on one line, and %d "
                     "are needed. One axis is taken for all slices, from rows %d to %d.",
                     agree, groups.size(), kLeastGroups, found.groups[best].first_row,
                     found.groups[best].first_row + found.groups[best].rows - 1)},
                 object.centers);
  }
  return TakeLine(*line, object);
}

absl::StatusOr<CenterResult> AxisFinder::CenterIn(const SliceGroup& group,
                                                  const ScannedObject& object) {
  OCTAVO_ASSIGN_OR_RETURN(const PreparedRows rows, Mended(object, group, /*overlap=*/false));
  const AxisConfig config = object.layout.AxisSearch(rows.shape.slices);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  auto found = octavo::FindCenter(
      run_.stream(), config.search,
      {.data = rows.sinograms(), .angle_first = false, .goes_on = Until(stop_)}, run_.device());
  run_.Discharge(bytes);
  run_.Free(rows.data);
  if (!found.ok()) return AtAxisField(found.status());
  return found;
}

// The axis of each slice, or turned projections with one axis; one axis if it does not lean.
absl::Status AxisFinder::TakeLine(const AxisLine& line, ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  const auto rows = static_cast<double>(layout.used_rows());
  model::AxisLineReport& report = *report_.axis_line;
  report.leans = line.Leans(rows);
  report_.center_uncertainty = line.mean_uncertainty;
  const std::string words = absl::StrFormat(
      "the axis leans by %.4f +- %.4f degrees in the plane of the detector (%.2f columns over %.0f "
      "rows), from %d of %d groups of rows, residual %.3f columns",
      report.tilt_degrees, line.slope_uncertainty * kDegrees, line.slope * (rows - 1), rows,
      line.points_used, report.groups.size(), line.residual_rms);
  std::vector<std::string> doubts;
  if (line.residual_rms > kMostResidual) {
    doubts.push_back(
        absl::StrFormat("The axis is no line: it is off by %.2f columns in the mean where the "
                        "groups of rows show it (Job.tomography.axis_line). Did the object move?",
                        line.residual_rms));
  }
  if (!report.leans) {
    object.centers = {line.At(line.mean_row)};
    run_.Log(absl::StrCat(words,
                          ": that is not significant, or below 0.1 columns; all slices have "
                          "one axis, at column ",
                          absl::StrFormat("%.3f", object.centers[0])));
    return Doubt(doubts, object.centers);
  }
  const bool turn = spec_.center.along_rows == model::AlongRows::kTurn;
  if (turn && std::abs(report.tilt_degrees) <= kMostTurn) {
    const double cosine = std::cos(report.tilt_degrees / kDegrees);
    object.centers = {layout.middle_column() +
                      (line.At(layout.middle_row()) - layout.middle_column()) * cosine};
    object.layout = layout.Turned(report.tilt_degrees);
    report.turned_degrees = report.tilt_degrees;
    run_.Log(absl::StrCat(words, ": projections are turned by that; the axis is at column ",
                          absl::StrFormat("%.3f", object.centers[0])));
    return Doubt(doubts, object.centers);
  }
  object.centers.clear();
  for (int64_t i = 0; i < layout.slices(); ++i)
    object.centers.push_back(line.At(layout.RowOfSlice(static_cast<double>(i))));
  run_.Log(
      absl::StrCat(words, ": each slice has its own axis, from column ",
                   absl::StrFormat("%.3f to %.3f", object.centers.front(), object.centers.back())));
  const double mixed =
      std::abs(std::sin(report.tilt_degrees / kDegrees)) * static_cast<double>(layout.columns());
  if (turn) {
    doubts.push_back(absl::StrFormat(
        "The axis leans by %.2f degrees, and center.along_rows TURN turns projections by up to "
        "%.0f: each slice has its own axis instead. Give preparation.roll_degrees %.3f to turn "
        "them.",
        report.tilt_degrees, kMostTurn, report.tilt_degrees));
  } else if (mixed > kMostMixed) {
    run_.Warn(absl::StrFormat(
        "The axis leans by %.2f degrees: an axis for each slice does not undo that rays at the "
        "ends of a row pass %.1f rows apart. center.along_rows TURN, or preparation.roll_degrees "
        "%.3f, turns the projections.",
        report.tilt_degrees, mixed, report.tilt_degrees));
  }
  return Doubt(doubts, object.centers);
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
