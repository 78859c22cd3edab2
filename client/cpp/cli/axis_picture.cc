#include "client/cpp/cli/axis_picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"

#include "client/cpp/cli/grey_canvas.h"
#include "client/cpp/cli/grey_picture.h"
#include "gpu/base/pixel_text.h"

namespace octavo::cli {
namespace {

constexpr int64_t kPageColumns = 960, kMargin = 12, kTitle = 2 * (kGlyphHeight + 5);
constexpr int64_t kPlotRows = 200, kLabelColumns = 66;
constexpr uint8_t kBlack = 0, kMid = 120, kLight = 205;
constexpr double kReach = 12, kStep = 0.25;  // columns around the axis, of the difference

double NaN() { return std::numeric_limits<double>::quiet_NaN(); }

/// A plot of numbers over columns or rows, on a part of the page.
class Plot {
 public:
  struct Axis {
    double least = 0, most = 1;
  };
  Plot(GreyCanvas& page, int64_t top, int64_t left, int64_t columns, const std::string& title,
       Axis x, Axis y)
      : page_(page),
        top_(top + kTitle),
        left_(left + kLabelColumns),
        columns_(columns - kLabelColumns),
        x_(x),
        y_(y) {
    page_.Text(top, left_, title, 2);
    page_.Frame(top_, left_, kPlotRows, columns_, kMid);
    // Without what rounding leaves of 0.
    const auto number = [](double value, const Axis& of) {
      return absl::StrFormat("%.4g", std::abs(value) < 1e-6 * (of.most - of.least) ? 0 : value);
    };
    page_.Text(top_, left, number(y_.most, y_));
    page_.Text(top_ + kPlotRows - kGlyphHeight, left, number(y_.least, y_));
    const int64_t below = top_ + kPlotRows + 4;
    page_.Text(below, left_, number(x_.least, x_));
    const std::string most = number(x_.most, x_);
    page_.Text(below, left_ + columns_ - TextWidth(most), most);
  }
  static int64_t rows() { return kTitle + kPlotRows + 4 + kGlyphHeight; }

  double Row(double y) const {
    return static_cast<double>(top_ + kPlotRows - 4) -
           (y - y_.least) / (y_.most - y_.least) * static_cast<double>(kPlotRows - 8);
  }
  double Column(double x) const {
    return static_cast<double>(left_ + 3) +
           (x - x_.least) / (x_.most - x_.least) * static_cast<double>(columns_ - 7);
  }
  bool Holds(double x) const { return x >= x_.least && x <= x_.most; }
  void Curve(const std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 1; i < x.size(); ++i) {
      if (std::isfinite(y[i - 1]) && std::isfinite(y[i]) && Holds(x[i - 1]) && Holds(x[i]))
        page_.Line(Row(y[i - 1]), Column(x[i - 1]), Row(y[i]), Column(x[i]), kBlack);
    }
  }
  /// A dashed line upright at x, with a text at its head.
  void Upright(double x, const std::string& text) {
    if (!Holds(x)) return;
    const int64_t column = std::lround(Column(x));
    for (int64_t row = top_ + 1; row < top_ + kPlotRows - 1; ++row) {
      if (row % 6 < 4) page_.Set(row, column, kMid);
    }
    const int64_t right = column + 5, width = TextWidth(text);
    page_.Text(top_ + 5, right + width < left_ + columns_ ? right : column - 5 - width, text);
  }

 private:
  GreyCanvas& page_;
  const int64_t top_, left_, columns_;
  const Axis x_, y_;
};

// The range of finite values, a little wider; never empty.
Plot::Axis RangeOf(const std::vector<double>& values, double wider) {
  Plot::Axis range{.least = std::numeric_limits<double>::infinity(),
                   .most = -std::numeric_limits<double>::infinity()};
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range.least = std::min(range.least, value);
    range.most = std::max(range.most, value);
  }
  if (!(range.least <= range.most)) return {};
  const double more = std::max({wider * (range.most - range.least), 1e-12 * std::abs(range.most),
                                std::numeric_limits<double>::min()});
  return {.least = range.least - more, .most = range.most + more};
}

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

/// A picture [rows, columns] as large as fits into a third of the page.
class Tile {
 public:
  Tile(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
    constexpr double kMostColumns = (kPageColumns - 4 * kMargin) / 3.0, kMostRows = 560,
                     kLeastRows = 48;
    across_ = std::min(kMostColumns / static_cast<double>(columns), 8.0);
    across_ = std::min(across_, kMostRows / static_cast<double>(rows));
    // A few rows are drawn higher.
    along_ = std::max(across_, kLeastRows / static_cast<double>(rows));
  }
  int64_t height() const { return Size(along_, rows_); }
  int64_t width() const { return Size(across_, columns_); }

  void Draw(GreyCanvas& page, int64_t top, int64_t left, const std::string& title,
            const std::vector<uint8_t>& greys) const {
    page.Text(top, left, title);
    for (int64_t row = 0; row < height(); ++row) {
      for (int64_t column = 0; column < width(); ++column)
        page.Set(top + kGlyphHeight + 5 + row, left + column, Mean(greys, row, column));
    }
  }
  void DrawAxis(GreyCanvas& page, int64_t top, int64_t left,
                const std::vector<double>& axes) const {
    for (int64_t row = 0; row < height(); ++row) {
      const auto of = std::min(rows_ - 1, static_cast<int64_t>(static_cast<double>(row) / along_));
      const int64_t column = std::lround((axes[static_cast<size_t>(of)] + 0.5) * across_ - 0.5);
      if (row % 8 < 4 && column >= 0 && column < width())
        page.Set(top + kGlyphHeight + 5 + row, left + column, row % 16 < 8 ? UINT8_MAX : kBlack);
    }
  }

 private:
  static int64_t Size(double scale, int64_t count) {
    return std::max<int64_t>(1, std::lround(scale * static_cast<double>(count)));
  }
  // The mean of the pixels that a pixel of the page covers.
  uint8_t Mean(const std::vector<uint8_t>& greys, int64_t row, int64_t column) const {
    const auto span = [](int64_t at, double scale, int64_t count) {
      const auto begin = static_cast<int64_t>(static_cast<double>(at) / scale),
                 end = static_cast<int64_t>(std::ceil(static_cast<double>(at + 1) / scale - 1e-9));
      return std::pair(std::clamp<int64_t>(begin, 0, count - 1),
                       std::clamp<int64_t>(std::max(end, begin + 1), 1, count));
    };
    const auto [top, bottom] = span(row, along_, rows_);
    const auto [left, right] = span(column, across_, columns_);
    int64_t sum = 0;
    for (int64_t r = top; r < bottom; ++r) {
      for (int64_t c = left; c < right; ++c) sum += greys[static_cast<size_t>(r * columns_ + c)];
    }
    return static_cast<uint8_t>(sum / ((bottom - top) * (right - left)));
  }

  const int64_t rows_, columns_;
  double across_ = 1, along_ = 1;  // pixels of the page for one of the picture
};

/// The difference with 0 as the middle grey, four times as strong as the contrast of `first`, so
/// that noise stays grey and what an axis leaves shows.
std::vector<uint8_t> DifferenceGreys(const std::vector<float>& first,
                                     const std::vector<float>& mirrored) {
  constexpr double kStronger = 4;
  std::vector<double> values(first.begin(), first.end());
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  double range = 0;
  if (!values.empty()) {
    const auto at = [&](double part) {
      const auto nth = values.begin() + std::lround(part * static_cast<double>(values.size() - 1));
      std::nth_element(values.begin(), nth, values.end());
      return *nth;
    };
    const double low = at(0.002);
    range = at(0.998) - low;
  }
  std::vector<uint8_t> greys(first.size(), kLight);
  for (size_t i = 0; i < first.size(); ++i) {
    const double off = static_cast<double>(first[i]) - static_cast<double>(mirrored[i]);
    if (!std::isfinite(off)) continue;  // one of the two saw nothing
    const double part = range > 0 ? std::clamp(kStronger * off / range, -1.0, 1.0) : 0;
    greys[i] = static_cast<uint8_t>(std::lround(127.5 + 127.5 * part));
  }
  return greys;
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
  return count * 8 >= std::ssize(mirrored) && whole > 0 ? std::sqrt(squares / whole) : NaN();
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
  const bool scores = report.scores_size() > 1, line = report.axis_line().groups_size() > 0;
  const std::optional<Tile> tile =
      pair != nullptr ? std::optional<Tile>(std::in_place, pair->rows, pair->columns)
                      : std::nullopt;
  const int64_t plot = Plot::rows() + kMargin;
  const int64_t rows = kMargin + (scores || pair != nullptr ? plot : 0) + (line ? plot : 0) +
                       (tile.has_value() ? kGlyphHeight + 5 + tile->height() + kMargin : 0);
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
  if (line) {
    DrawLine(page, top, report.axis_line());
    top += plot;
  }
  if (tile.has_value()) DrawPair(page, top, *pair, *tile, report.opposite_degrees());
  return page.Write(path);
}

}  // namespace octavo::cli
