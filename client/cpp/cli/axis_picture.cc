#include "client/cpp/cli/axis_picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"

#include "client/cpp/cli/evidence_plot.h"
#include "client/cpp/cli/grey_canvas.h"
#include "client/cpp/cli/grey_picture.h"

namespace octavo::cli {
namespace {

constexpr uint8_t kBlack = 0, kMid = 120;
constexpr double kReach = 12, kStep = 0.25;  // columns around the axis, of the difference

double NaN() { return std::numeric_limits<double>::quiet_NaN(); }

/// The axis in words: of several, that in the middle.
double MiddleOf(const v1::TomographyReport& report) {
  return report.centers(report.centers_size() / 2);
}

void DrawScores(GreyCanvas& page, int64_t top, int64_t left, int64_t columns,
                const v1::TomographyReport& report) {
  const std::vector<double> at(report.tried_centers().begin(), report.tried_centers().end()),
      scores(report.scores().begin(), report.scores().end());
  const bool least = report.center_source() == v1::TomographyReport::CENTER_SOURCE_VO ||
                     report.center_source() == v1::TomographyReport::CENTER_SOURCE_ENTROPY;
  // An axis along the rows has scores of each group; these are of the one that knows it best.
  const std::string of = report.axis_line().groups().empty() ? "scores" : "scores of a group";
  Plot plot(page, top, left, columns, of + (least ? " / least is best" : " / greatest is best"),
            RangeOf(at, 0), RangeOf(scores, 0.03));
  plot.Upright(MiddleOf(report), absl::StrFormat("axis %.2f", MiddleOf(report)));
  plot.Curve(at, scores);
}

void DrawDifference(GreyCanvas& page, int64_t top, int64_t left, int64_t columns,
                    const OppositePair& pair, double detector_columns) {
  DifferenceCurve curve = CurveOf(pair);
  for (double& offset : curve.offsets) offset *= detector_columns;
  Plot plot(page, top, left, columns,
            curve.least_at.has_value() ? "opposite projections / difference"
                                       : "opposite projections / no overlap",
            RangeOf(curve.offsets, 0), RangeOf(curve.differences, 0.03));
  plot.Upright(0, "axis");
  plot.Curve(curve.offsets, curve.differences);
}

void DrawLine(GreyCanvas& page, int64_t top, const v1::AxisLine& line) {
  std::vector<double> rows, columns;
  for (const auto& group : line.groups()) {
    rows.push_back(group.first_row());
    rows.push_back(group.first_row() + group.rows() - 1);
    // A place that nobody believes must not squeeze the others.
    if (!group.used() && !std::isnan(line.slope())) continue;
    columns.push_back(group.center() - group.uncertainty());
    columns.push_back(group.center() + group.uncertainty());
  }
  const Plot::Axis along = RangeOf(rows, 0);
  const auto at = [&](double row) { return line.offset() + line.slope() * row; };
  if (!std::isnan(line.slope())) {
    columns.push_back(at(along.least));
    columns.push_back(at(along.most));
  }
  const Plot::Axis across = RangeOf(columns, 0.15);
  Plot plot(
      page, top, kMargin, kPageColumns - 2 * kMargin,
      std::isnan(line.slope())
          ? "axis along the rows / no line"
          : absl::StrFormat("axis along the rows / tilt %.4f +- %.4f degrees", line.tilt_degrees(),
                            std::atan(line.slope_uncertainty()) * 180 / M_PI),
      along, across);
  if (!std::isnan(line.slope()))
    plot.Curve({along.least, along.most}, {at(along.least), at(along.most)});
  for (const auto& group : line.groups()) {
    const double row = group.first_row() + 0.5 * (group.rows() - 1),
                 center = std::clamp(group.center(), across.least, across.most);
    const auto bar = [&](double value) {
      return plot.Row(std::clamp(value, across.least, across.most));
    };
    page.Line(bar(group.center() - group.uncertainty()), plot.Column(row),
              bar(group.center() + group.uncertainty()), plot.Column(row),
              group.used() ? kBlack : kMid);
    page.Mark(plot.Row(center), plot.Column(row), 4, group.used(), kBlack);
  }
}

/// One bar for each half turn, side by side: that of the sums, and that of the centres.
void DrawHalfTurns(GreyCanvas& page, int64_t top, const v1::TomographyReport& report) {
  const int64_t half = (kPageColumns - 3 * kMargin) / 2;
  const auto draw = [&](int64_t left, const std::string& title, auto deviation_of) {
    std::vector<double> values;
    for (const auto& turn : report.half_turns()) values.push_back(deviation_of(turn));
    Plot::Axis y{.least = 0, .most = 1.05 * RangeOf(values, 0).most};
    if (!(y.most > 0)) y.most = 1;
    const auto count = static_cast<double>(values.size());
    Plot plot(page, top, left, half, title, {.least = 0.4, .most = count + 0.6}, y, false);
    for (int i = 0; i < report.half_turns_size(); ++i) {
      const double value = values[static_cast<size_t>(i)];
      const bool used = report.half_turns(i).used();
      plot.Bar(
          i + 1, 0.3, value, used,
          absl::StrFormat("%d%s / %s", i + 1, used ? " used" : "",
                          std::isfinite(value) ? absl::StrFormat("%.3g", value) : "not compared"));
    }
  };
  draw(kMargin, "half turns / sums, relative",
       [](const v1::HalfTurnReport& turn) { return turn.mass_deviation(); });
  draw(2 * kMargin + half, "half turns / centres, columns",
       [](const v1::HalfTurnReport& turn) { return turn.center_deviation(); });
}

void DrawPair(GreyCanvas& page, int64_t top, const OppositePair& pair, const Tile& tile,
              double degrees) {
  const std::vector<float> mirrored = pair.Mirrored(0);
  // Both with one contrast.
  std::vector<float> both = pair.first;
  both.insert(both.end(), mirrored.begin(), mirrored.end());
  const std::vector<uint8_t> greys = GreysOf(both);
  const auto half = greys.begin() + std::ssize(pair.first);
  const int64_t step = (kPageColumns - kMargin) / 3;
  tile.Draw(page, top, kMargin, "projection", {greys.begin(), half});
  tile.DrawAxis(page, top, kMargin, pair.axes);
  tile.Draw(page, top, kMargin + step, absl::StrFormat("%.4g degrees on / mirrored", degrees),
            {half, greys.end()});
  tile.DrawAxis(page, top, kMargin + step, pair.axes);
  const double difference = pair.Difference(0);
  tile.Draw(page, top, kMargin + 2 * step,
            std::isnan(difference) ? "difference x 4 / hardly any overlap"
                                   : absl::StrFormat("difference x 4 / %.4f", difference),
            DifferenceGreys(pair.first, mirrored));
}

}  // namespace

std::vector<float> OppositePair::Mirrored(double offset) const {
  std::vector<float> out(first.size(), std::numeric_limits<float>::quiet_NaN());
  for (int64_t r = 0; r < rows; ++r) {
    const float* const row = second.data() + r * columns;
    for (int64_t c = 0; c < columns; ++c) {
      const double at = 2 * (axes[static_cast<size_t>(r)] + offset) - static_cast<double>(c);
      if (at < 0 || at > static_cast<double>(columns - 1)) continue;
      const auto left = std::min(static_cast<int64_t>(at), columns - 2);
      const auto part = static_cast<float>(at - static_cast<double>(left));
      out[static_cast<size_t>(r * columns + c)] = (1 - part) * row[left] + part * row[left + 1];
    }
  }
  return out;
}

double OppositePair::Difference(double offset) const {
  const std::vector<float> mirrored = Mirrored(offset);
  double squares = 0, whole = 0;
  int64_t count = 0;
  for (size_t i = 0; i < mirrored.size(); ++i) {
    const double off = static_cast<double>(first[i]) - static_cast<double>(mirrored[i]);
    if (!std::isfinite(off)) continue;
    squares += off * off;
    whole += static_cast<double>(first[i]) * static_cast<double>(first[i]);
    ++count;
  }
  // A few columns that both saw say nothing.
  const double least = least_part * static_cast<double>(mirrored.size());
  return static_cast<double>(count) >= least && whole > 0 ? std::sqrt(squares / whole) : NaN();
}

DifferenceCurve CurveOf(const OppositePair& pair) {
  DifferenceCurve curve;
  for (int64_t i = -std::lround(kReach / kStep); i <= std::lround(kReach / kStep); ++i) {
    curve.offsets.push_back(static_cast<double>(i) * kStep);
    curve.differences.push_back(pair.Difference(curve.offsets.back()));
  }
  // Of equal ones that nearest to the axis.
  std::optional<size_t> best;
  for (size_t i = 0; i < curve.offsets.size(); ++i) {
    const double difference = curve.differences[i];
    if (std::isnan(difference)) continue;
    if (!best.has_value() || difference < curve.differences[*best] ||
        (difference == curve.differences[*best] &&
         std::abs(curve.offsets[i]) < std::abs(curve.offsets[*best])))
      best = i;
  }
  if (!best.has_value()) return curve;
  curve.least_at = curve.offsets[*best];
  const auto at = [&](size_t i) { return i < curve.offsets.size() ? curve.differences[i] : NaN(); };
  // Before the first one there is none either: the index wraps around.
  const double before = at(*best - 1), after = at(*best + 1);
  curve.least_at_end = std::isnan(before) || std::isnan(after);
  if (const double bend = before - 2 * curve.differences[*best] + after; bend > 0)
    *curve.least_at += 0.5 * kStep * (before - after) / bend;
  return curve;
}

bool WriteAxisPicture(const std::string& path, const v1::TomographyReport& report,
                      const OppositePair* pair, double detector_columns) {
  const bool scores = report.scores_size() > 1, line = report.axis_line().groups_size() > 0,
             turns = report.half_turns_size() > 0;
  const std::optional<Tile> tile =
      pair != nullptr ? std::optional<Tile>(std::in_place, pair->rows, pair->columns)
                      : std::nullopt;
  const int64_t plot = Plot::rows() + kMargin;
  const int64_t rows = kMargin + (scores || pair != nullptr ? plot : 0) + (turns ? plot : 0) +
                       (line ? plot : 0) + (tile.has_value() ? tile->rows() + kMargin : 0);
  GreyCanvas page(rows, kPageColumns);
  int64_t top = kMargin;
  const int64_t half = (kPageColumns - 3 * kMargin) / 2;
  if (scores)
    DrawScores(page, top, kMargin, pair != nullptr ? half : kPageColumns - 2 * kMargin, report);
  if (pair != nullptr) {
    DrawDifference(page, top, scores ? 2 * kMargin + half : kMargin,
                   scores ? half : kPageColumns - 2 * kMargin, *pair, detector_columns);
  }
  if (scores || pair != nullptr) top += plot;
  if (turns) {
    DrawHalfTurns(page, top, report);
    top += plot;
  }
  if (line) {
    DrawLine(page, top, report.axis_line());
    top += plot;
  }
  if (tile.has_value()) DrawPair(page, top, *pair, *tile, report.opposite_degrees());
  return page.Write(path);
}

}  // namespace octavo::cli
