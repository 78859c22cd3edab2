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
#include "server/tomography/consistency.h"
#include "server/tomography/prepare_counts.h"

namespace octavo::tomography {
namespace {

constexpr double kSearchPart = 0.05;                 // of the whole job, for its bar
constexpr double kDegrees = 180 / std::numbers::pi;  // of a radian
constexpr int64_t kLeastGroups = 3;                  // of rows, that agree on a line
// Of the axis in a group, in columns: that of methods which do not tell theirs, and the largest of
// one that counts.
constexpr double kUnknownUncertainty = 0.25, kMostUncertainty = 5;
constexpr double kMostResidual = 1;                    // columns, in the mean: of a line
constexpr double kMostMixed = 2;                       // rows, from one end of a row to the other
constexpr int64_t kMostTurned = 2;                     // searches of the line in turned projections
constexpr double kMostMissed = 1;                      // columns, by a search
constexpr double kLeastShare = 0.5, kMostShare = 2.5;  // of a tilt, that a line shows

model::CenterSource SourceOf(CenterMethod method) {
  switch (method) {
    case CenterMethod::kVo: return model::CenterSource::kVo;
    case CenterMethod::kEntropy: return model::CenterSource::kEntropy;
    case CenterMethod::kPhaseCorrelation: return model::CenterSource::kPhaseCorrelation;
    case CenterMethod::kPairs: return model::CenterSource::kPairs;
  }
  return model::CenterSource::kNone;
}

// Whether nearly all projections have another one half a turn away, or one on either side of there.
// A scan over half a turn has few, also with some projections more at its end.
bool HasOpposites(const std::vector<double>& angles_rad) {
  constexpr double kTurn = 2 * std::numbers::pi, kSame = 1e-6;
  constexpr size_t kLeast = 8;
  std::vector<double> places, gaps;  // within the turn
  for (const double angle : angles_rad) places.push_back(angle - kTurn * std::floor(angle / kTurn));
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < places.size(); ++i) {
    const double gap =
        i + 1 < places.size() ? places[i + 1] - places[i] : places.front() + kTurn - places.back();
    if (gap > kSame) gaps.push_back(gap);
  }
  if (gaps.size() < kLeast) return false;
  const auto middle = gaps.begin() + std::ssize(gaps) / 2;
  std::nth_element(gaps.begin(), middle, gaps.end());
  size_t with = 0;
  for (const double place : places) {
    const double opposite = std::fmod(place + std::numbers::pi, kTurn);
    const auto after = std::lower_bound(places.begin(), places.end(), opposite);
    const double up = (after == places.end() ? places.front() + kTurn : *after) - opposite,
                 down = opposite - (after == places.begin() ? places.back() - kTurn : after[-1]);
    if (std::min(up, down) <= 0.75 * *middle) ++with;
  }
  return 5 * with >= 4 * places.size();
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
    const int64_t rounds = spec_.center.along_rows == model::AlongRows::kTurn ? 1 + kMostTurned : 1,
                  steps = line ? rounds * std::ssize(layout.search_groups()) + 1 : 1;
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
  // A search finds some axis for wrong angles, too.
  if (!overlap) OCTAVO_RETURN_IF_ERROR(CheckTogether(prepared, object, AxisKnown::kSearched));
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
                      "removal of dead stripes (preparation.rings DEAD_STRIPE) mends them there.",
                      dead.size(), dead.size() == 1 ? "column is" : "columns are",
                      layout.RawCenter(static_cast<double>(dead.front()))));
}

// Looks for the axis in groups of rows, lays a line through what they say, and looks once more, by
// several methods, where it is known best.
absl::Status AxisFinder::SearchLine(ScannedObject& object) {
  OCTAVO_ASSIGN_OR_RETURN(const LineSearch search, LookForLine(object));
  const std::vector<SliceGroup> groups = object.layout.line_groups();
  report_.axis_line.emplace().groups = search.groups;
  // Without a line, the middle group says where the axis is, as for an axis that does not lean.
  size_t best = groups.size() / 2;
  for (size_t i = 0; search.agree() >= kLeastGroups && i < groups.size(); ++i) {
    const bool used = search.line->used[i];
    if (used && (!search.line->used[best] ||
                 search.points[i].uncertainty < search.points[best].uncertainty))
      best = i;
  }
  if (search.line.has_value())
    TellLine(*search.line, search, 0, std::atan(search.line->slope) * kDegrees);
  OCTAVO_RETURN_IF_ERROR(SearchIn(groups[best], /*overlap=*/false, object));
  if (search.agree() < kLeastGroups) {
    const model::AxisLineReport::Group& group = search.groups[best];
    return Doubt(
        {absl::StrFormat("The axis may lean: only %d of %d groups of rows show it on one line, and "
                         "%d are needed. One axis is taken for all slices, from rows %d to %d.",
                         search.agree(), groups.size(), kLeastGroups, group.first_row,
                         group.first_row + group.rows - 1)},
        object.centers);
  }
  if (spec_.center.along_rows != model::AlongRows::kTurn) return TakeLine(*search.line, object);
  OCTAVO_ASSIGN_OR_RETURN(const AxisLine line, RefinedByTurning(*search.line, object));
  return TakeLine(line, object);
}

absl::StatusOr<AxisFinder::LineSearch> AxisFinder::LookForLine(const ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  LineSearch search;
  for (const SliceGroup& group : layout.line_groups()) {
    OCTAVO_ASSIGN_OR_RETURN(const CenterResult center, CenterIn(group, object));
    const AxisResult raw = layout.RawAxis({.found = center, .check = std::nullopt});
    const double uncertainty = raw.found.uncertainty;
    const BatchRows rows = layout.RowsOf(group.first, group.count);
    search.points.push_back(
        {.row = layout.RowOfSlice(static_cast<double>(group.first) +
                                  0.5 * static_cast<double>(group.count - 1)),
         .center = raw.found.center,
         .uncertainty = uncertainty > 0 ? uncertainty : kUnknownUncertainty,
         .determined = center.determined && !center.at_edge && uncertainty <= kMostUncertainty});
    search.groups.push_back(
        {.first_row = rows.first + rows.crop * rows.step,
         .rows = rows.step > 1 ? (rows.count - 1) * rows.step + 1 : rows.crop_rows,
         .center = raw.found.center,
         .uncertainty = search.points.back().uncertainty});
    run_.Step(++groups_done_, std::numeric_limits<double>::quiet_NaN());
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  }
  search.line = FitAxisLine(search.points);
  for (size_t i = 0; search.line.has_value() && i < search.points.size(); ++i) {
    search.groups[i].used = search.line->used[i];
    search.groups[i].residual = search.points[i].center - search.line->At(search.points[i].row);
  }
  return search;
}

// The opposite side sees a part of the object at u columns from the axis 2 u sin(tilt) rows further
// down: within a row, only what is as thick as that along the axis is seen from both sides. Such a
// part shows its own middle in all rows that see it, not the axis of the row, and the line through
// the rows becomes too steep or, as the object ends, mostly too flat: it shows a share of the tilt.
// Without a tilt there is no such error, so that the turn after which nothing remains is the tilt.
// It is found by the rule of false position between no turn and the last one.
absl::StatusOr<AxisLine> AxisFinder::RefinedByTurning(AxisLine line, const ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  const auto degrees = [](const AxisLine& of) { return std::atan(of.slope) * kDegrees; };
  const double unturned = degrees(line);
  for (int64_t round = 1; round <= kMostTurned; ++round) {
    const double turned = degrees(line);
    if (!line.Leans(static_cast<double>(layout.used_rows())) || std::abs(turned) > kMostTurn) break;
    ScannedObject turned_object = object;
    turned_object.layout = layout.Turned(turned);
    OCTAVO_ASSIGN_OR_RETURN(LineSearch search, LookForLine(turned_object));
    if (search.agree() < kLeastGroups) {
      run_.Log(
          absl::StrFormat("the axis is not on a line in projections turned by %.4f degrees: "
                          "the tilt stays as it was found",
                          turned));
      break;
    }
    const double remaining = degrees(*search.line),
                 share = std::clamp((unturned - remaining) / turned, kLeastShare, kMostShare);
    search.Steepen(1 / share);
    line = TurnedBack(*search.line, turned, layout.middle_row(), layout.middle_column());
    TellLine(line, search, turned, remaining);
    const double uncertainty = line.slope_uncertainty * kDegrees;
    run_.Log(absl::StrFormat(
        "in projections turned by %.4f degrees, the line of the axis leans by another %.4f "
        "degrees: its tilt is %.4f +- %.4f degrees",
        turned, remaining, degrees(line), uncertainty));
    if (std::abs(degrees(line) - turned) < uncertainty) break;
  }
  return line;
}

void AxisFinder::LineSearch::Steepen(double factor) {
  const double at = line->At(line->mean_row);
  line->slope *= factor;
  line->slope_uncertainty *= factor;
  line->offset = at - line->slope * line->mean_row;
  for (size_t i = 0; i < points.size(); ++i)
    groups[i].residual = points[i].center - line->At(points[i].row);
}

// `line` on the detector, which `search` shows, perhaps in turned projections.
void AxisFinder::TellLine(const AxisLine& line, const LineSearch& search, double turned,
                          double remaining) {
  model::AxisLineReport& report = *report_.axis_line;
  report.groups = search.groups;
  for (size_t i = 0; i < report.groups.size(); ++i)
    report.groups[i].center = line.At(search.points[i].row) + report.groups[i].residual;
  report.offset = line.offset;
  report.slope = line.slope;
  report.offset_uncertainty = line.offset_uncertainty;
  report.slope_uncertainty = line.slope_uncertainty;
  report.tilt_degrees = std::atan(line.slope) * kDegrees;
  report.residual_rms = line.residual_rms;
  report.rounds.push_back({.tilt_degrees = report.tilt_degrees,
                           .uncertainty_degrees = line.slope_uncertainty * kDegrees,
                           .groups_used = line.points_used,
                           .turned_degrees = turned,
                           .remaining_degrees = remaining});
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
        "them, and center.along_rows LINE, which tells what is left of the tilt.",
        report.tilt_degrees, kMostTurn, report.tilt_degrees));
  } else if (mixed > kMostMixed) {
    run_.Warn(absl::StrFormat(
        "The axis leans by %.2f degrees: an axis for each slice does not undo that rays at the "
        "ends of a row pass %.1f rows apart. center.along_rows TURN measures the tilt more exactly "
        "and turns the projections.",
        report.tilt_degrees, mixed));
  }
  return Doubt(doubts, object.centers);
}

// Values that no column of the detector saw are no part of the object, and would bias the axis.
absl::StatusOr<std::vector<int64_t>> AxisFinder::Mend(const PreparedRows& rows) {
  const PreparedShape& s = rows.shape;
  return MendDeadColumns(run_.stream(), {rows.data, s.elements()}, s.slices, s.angles, s.detectors,
                         run_.device(), Until(stop_));
}

// Compares an axis, or an overlap, that the job does not search with a few rows: gives a warning if
// they show clearly that it is elsewhere, and never ends the job.
absl::Status AxisFinder::Check(const ScannedObject& object) {
  if (check_slices_ == 0) return absl::OkStatus();
  const TomographyLayout& layout = object.layout;
  const bool overlap = layout.stitched();
  const auto prepared = rows_.Prepare(layout, object.input,
                                      layout.RowsOf(layout.center_slice(), check_slices_), overlap);
  absl::Status checked = prepared.status();
  if (prepared.ok()) {
    checked = overlap ? CheckOverlap(*prepared, object) : CheckIn(*prepared, object);
    run_.Free(prepared->data);
  }
  if (absl::IsCancelled(checked) || absl::IsUnavailable(checked)) return checked;
  if (!checked.ok())
    run_.Log(absl::StrCat("the ", overlap ? "overlap" : "axis",
                          " was not checked: ", checked.message()));
  return absl::OkStatus();
}

absl::Status AxisFinder::CheckIn(const PreparedRows& rows, const ScannedObject& object) {
  constexpr double kSure = 0.3;  // columns
  // An axis that is known less well says only that another one, as many times its uncertainty away,
  // is wrong.
  constexpr double kFar = 8, kKnown = 1;  // kKnown: prepared columns
  // The least distance that is told. Over half a turn only the first and the last projections are
  // opposite, and a sample that has moved between them seems to have another axis.
  constexpr double kLeastOfHalfTurn = 1, kLeastOfFullTurn = 0.3;  // columns
  const TomographyLayout& layout = object.layout;
  OCTAVO_RETURN_IF_ERROR(Mend(rows).status());
  AxisConfig config = layout.AxisCheck(rows.shape.slices);
  const double taken =
      object.centers[object.centers.size() == 1 ? 0 : static_cast<size_t>(layout.center_slice())];
  const double columns = 1 / config.agreement;  // several if binned
  const double least =
      HasOpposites(config.search.angles_rad) ? kLeastOfFullTurn * columns : kLeastOfHalfTurn;
  const auto known = [](const CenterResult& found) { return found.determined && !found.at_edge; };
  const auto off = [&](const CenterResult& found) {
    return std::abs(layout.RawCenter(found.center) - taken);
  };
  const auto elsewhere = [&](const CenterResult& found) {
    const double uncertainty = found.uncertainty * columns;
    if (!known(found)) return false;
    return uncertainty <= kSure
               ? off(found) > least + 3 * uncertainty
               : found.uncertainty <= kKnown && off(found) > least + kFar * uncertainty;
  };
  const CenterInput input = {
      .data = rows.sinograms(), .angle_first = false, .goes_on = Until(stop_)};
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindAxisBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  // Try the cheap method first: usually it finds no contradiction.
  absl::StatusOr<AxisResult> axis = AxisResult{};
  const auto pairs = octavo::FindCenter(run_.stream(), config.search, input, run_.device());
  const bool look = pairs.ok() && elsewhere(*pairs);
  if (look) {
    // The distance is many times what the methods may differ by.
    if (pairs->uncertainty * columns > kSure)
      config.agreement = std::max(config.agreement, 3 * pairs->uncertainty);
    axis = FindAxis(run_.stream(), config, input, run_.device());
  }
  run_.Discharge(bytes);
  OCTAVO_RETURN_IF_ERROR(pairs.status());
  OCTAVO_RETURN_IF_ERROR(axis.status());
  if (known(*pairs) && off(*pairs) <= least + 3 * pairs->uncertainty * columns)
    return CheckTogether(rows, object, AxisKnown::kSeen);
  if (!look || !axis->agreed || !elsewhere(axis->found))
    return CheckTogether(rows, object, AxisKnown::kGiven);
  // Methods that agree may differ by a column: the second one may be on the side of the given axis.
  if (axis->check.has_value()) {
    const double check = layout.RawCenter(*axis->check);
    if (std::abs(check - taken) < std::abs(check - layout.RawCenter(axis->found.center)))
      return absl::OkStatus();
  }
  const AxisResult raw = layout.RawAxis(*axis);
  const std::string source = report_.center_source == model::CenterSource::kMiddle
                                 ? "The axis is taken in the middle,"
                             : report_.center_source == model::CenterSource::kFile
                                 ? "The axis is taken where the file says,"
                                 : "The axis is given as";
  run_.Warn(
      absl::StrFormat("%s column %.2f; opposite projections find it at %.2f +- %.2f: "
                      "center.search_method AUTO takes that.",
                      source, taken, raw.found.center, raw.found.uncertainty));
  return absl::OkStatus();
}

// The angles may be wrong, even if opposite projections show the axis, as those of a round object
// do: then the projections are none of an object that turns by them.
absl::Status AxisFinder::CheckTogether(const PreparedRows& rows, const ScannedObject& object,
                                       AxisKnown axis) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const TomographyLayout& layout = object.layout;
  const PreparedShape& s = rows.shape;
  const int64_t bytes = s.angles * s.detectors * 4,
                slices = std::clamp<int64_t>(kMostBytes / bytes, 1, s.slices);
  std::vector<SliceMoments> moments;
  std::vector<double> axes;
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run_.device().AllocatePinned(bytes));
  for (int64_t i = 0; i < slices; ++i) {
    const absl::Status copied = run_.device().CopyToHost(
        run_.stream(), host.data(), rows.data + i * s.angles * s.detectors, bytes);
    OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
    OCTAVO_RETURN_IF_ERROR(copied);
    moments.push_back(MomentsOf(host.as<float>(), s.angles, s.detectors));
    const size_t which =
        object.centers.size() == 1 ? 0 : static_cast<size_t>(layout.center_slice() + i);
    axes.push_back(layout.PreparedCenterOf(object.centers[which]));
  }
  const std::vector<double>& angles = layout.angles_rad();
  const std::optional<Consistency> found = ConsistencyOf(moments, angles, axes);
  const bool axis_seen = axis != AxisKnown::kGiven;
  if (!found.has_value() || !found->off_path(axis_seen)) return absl::OkStatus();
  // A search may miss the axis a little.
  for (const double miss : {-kMostMissed, kMostMissed}) {
    if (axis != AxisKnown::kSearched) break;
    std::vector<double> beside = axes;
    for (double& column : beside) column += miss;
    if (!ConsistencyOf(moments, angles, beside)->off_path(axis_seen)) return absl::OkStatus();
  }
  const auto [least, most] = std::minmax_element(angles.begin(), angles.end());
  run_.Warn(absl::StrFormat(
      "The projections do not fit together: with the axis at column %.2f and the angles from %.1f "
      "to %.1f degrees, their centres of mass lie %.2f columns off the path of an object that "
      "turns "
      "(%.2f columns off the axis; root mean squares). Look at the order, the span and the unit of "
      "the angles (angles_rad), at the axis (center.pixels), and at the frames.",
      object.centers[object.centers.size() == 1 ? 0 : static_cast<size_t>(layout.center_slice())],
      *least * kDegrees, *most * kDegrees, found->center_deviation, found->center_distance));
  return absl::OkStatus();
}

// Compares a given overlap of the two halves with the one that they show.
absl::Status AxisFinder::CheckOverlap(const PreparedRows& rows, const ScannedObject& object) {
  constexpr double kLeast = 1;      // columns
  constexpr double kAlike = 0.8;    // correlation of halves that show where they overlap
  constexpr double kWorse = 2;      // times the part that does not correlate
  constexpr double kChance = 0.02;  // of that part
  const double given = object.layout.overlap();
  OCTAVO_RETURN_IF_ERROR(Mend(rows).status());
  OverlapConfig config = object.layout.OverlapSearch();
  config.slices = rows.shape.slices;
  OverlapConfig near = config;
  near.overlap_min = std::max<int64_t>(2, static_cast<int64_t>(std::floor(given)) - 1);
  near.overlap_max = std::min(config.detectors, static_cast<int64_t>(std::ceil(given)) + 1);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FindOverlapBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  const CenterInput input = {.data = rows.sinograms(), .angle_first = false};
  const auto found = octavo::FindOverlap(run_.stream(), config, input, run_.device()),
             there = octavo::FindOverlap(run_.stream(), near, input, run_.device());
  run_.Discharge(bytes);
  OCTAVO_RETURN_IF_ERROR(found.status());
  OCTAVO_RETURN_IF_ERROR(there.status());
  if (found->at_edge || found->correlation < kAlike || std::abs(found->overlap - given) <= kLeast ||
      1 - there->correlation <= kWorse * (1 - found->correlation) + kChance)
    return absl::OkStatus();
  run_.Warn(absl::StrFormat(
      "stitching.overlap is given as %.2f columns, where the halves have a correlation of %.3f; "
      "they fit best at %.2f columns, with %.3f: without a given overlap, the job takes that.",
      given, there->correlation, found->overlap, found->correlation));
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
  const FlatComponents flats = object.layout.flat_components();
  const std::vector<double> shifts = object.layout.row_shifts();
  OCTAVO_ASSIGN_OR_RETURN(object.layout,
                          TomographyLayout::Make(spec, object.input->info(), found->overlap));
  object.layout = object.layout.WithFlatComponents(flats).WithRowShifts(shifts);
  return absl::OkStatus();
}

}  // namespace octavo::tomography
