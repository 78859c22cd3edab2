#include "client/cpp/cli/evidence_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

#include "gpu/base/pixel_text.h"

namespace octavo::cli {
namespace {

constexpr int64_t kTitle = 2 * (kGlyphHeight + 5);
constexpr int64_t kPlotRows = 200, kLabelColumns = 66;
constexpr uint8_t kBlack = 0, kMid = 120, kLight = 205;

}  // namespace

Plot::Plot(GreyCanvas& page, int64_t top, int64_t left, int64_t columns, const std::string& title,
           Axis x, Axis y, bool ends)
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
  if (!ends) return;
  const int64_t below = top_ + kPlotRows + 4;
  page_.Text(below, left_, number(x_.least, x_));
  const std::string most = number(x_.most, x_);
  page_.Text(below, left_ + columns_ - TextWidth(most), most);
}

int64_t Plot::rows() { return kTitle + kPlotRows + 4 + kGlyphHeight; }

double Plot::Row(double y) const {
  return static_cast<double>(top_ + kPlotRows - 4) -
         (y - y_.least) / (y_.most - y_.least) * static_cast<double>(kPlotRows - 8);
}

double Plot::Column(double x) const {
  return static_cast<double>(left_ + 3) +
         (x - x_.least) / (x_.most - x_.least) * static_cast<double>(columns_ - 7);
}

void Plot::Curve(const std::vector<double>& x, const std::vector<double>& y) {
  for (size_t i = 1; i < x.size(); ++i) {
    if (std::isfinite(y[i - 1]) && std::isfinite(y[i]) && Holds(x[i - 1]) && Holds(x[i]))
      page_.Line(Row(y[i - 1]), Column(x[i - 1]), Row(y[i]), Column(x[i]), kBlack);
  }
}

void Plot::Upright(double x, const std::string& text) {
  if (!Holds(x)) return;
  const int64_t column = std::lround(Column(x));
  for (int64_t row = top_ + 1; row < top_ + kPlotRows - 1; ++row) {
    if (row % 6 < 4) page_.Set(row, column, kMid);
  }
  const int64_t right = column + 5, width = TextWidth(text);
  page_.Text(top_ + 5, right + width < left_ + columns_ ? right : column - 5 - width, text);
}

void Plot::Bar(double x, double half_width, double y, bool filled, const std::string& text) {
  const int64_t left = std::lround(Column(x - half_width)),
                right = std::lround(Column(x + half_width));
  page_.Text(top_ + kPlotRows + 4, (left + right - TextWidth(text)) / 2, text);
  if (!std::isfinite(y)) return;
  const int64_t bottom = top_ + kPlotRows - 1,
                upper = std::min<int64_t>(std::lround(Row(y)), bottom - 1);
  for (int64_t row = upper; filled && row < bottom; ++row) {
    for (int64_t column = left; column <= right; ++column) page_.Set(row, column, kBlack);
  }
  page_.Frame(upper, left, bottom - upper + 1, right - left + 1, filled ? kBlack : kMid);
}

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

Tile::Tile(int64_t rows, int64_t columns, double most_columns) : rows_(rows), columns_(columns) {
  constexpr double kMostRows = 560, kLeastRows = 48;
  across_ = std::min(most_columns / static_cast<double>(columns), 8.0);
  across_ = std::min(across_, kMostRows / static_cast<double>(rows));
  // A few rows are drawn higher.
  along_ = std::max(across_, kLeastRows / static_cast<double>(rows));
}

int64_t Tile::rows() const { return kGlyphHeight + 5 + height(); }

void Tile::Draw(GreyCanvas& page, int64_t top, int64_t left, const std::string& title,
                const std::vector<uint8_t>& greys) const {
  page.Text(top, left, title);
  for (int64_t row = 0; row < height(); ++row) {
    for (int64_t column = 0; column < width(); ++column)
      page.Set(top + kGlyphHeight + 5 + row, left + column, Mean(greys, row, column));
  }
}

void Tile::DrawAxis(GreyCanvas& page, int64_t top, int64_t left,
                    const std::vector<double>& axes) const {
  for (int64_t row = 0; row < height(); ++row) {
    const auto of = std::min(rows_ - 1, static_cast<int64_t>(static_cast<double>(row) / along_));
    const int64_t column = std::lround((axes[static_cast<size_t>(of)] + 0.5) * across_ - 0.5);
    if (row % 8 < 4 && column >= 0 && column < width())
      page.Set(top + kGlyphHeight + 5 + row, left + column, row % 16 < 8 ? UINT8_MAX : kBlack);
  }
}

int64_t Tile::Size(double scale, int64_t count) {
  return std::max<int64_t>(1, std::lround(scale * static_cast<double>(count)));
}

uint8_t Tile::Mean(const std::vector<uint8_t>& greys, int64_t row, int64_t column) const {
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

}  // namespace octavo::cli
