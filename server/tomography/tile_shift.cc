#include "server/tomography/tile_shift.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace octavo::tomography {
namespace {

constexpr int kTaps = 4;           // of the interpolation along an axis
constexpr int64_t kMargin = 2;     // pixels to either side that it takes, of shifts within a pixel
constexpr int kMostSteps = 30;     // two to four with little noise, which makes them shorter
constexpr double kSettled = 1e-3;  // pixels, of a step

/// How a value between samples, and its slope, come of those around it along one axis.
struct Taps {
  int64_t first = 0;  // sample, from the one at the place itself
  int count = 1;
  std::array<float, kTaps> value = {1, 0, 0, 0}, slope = {};
};

/// At `place` samples from one, within one: cubic convolution with a = −1/2.
Taps TapsAt(double place) {
  const double whole = std::floor(place), t = place - whole;
  const auto each = [](double a, double b, double c, double d) {
    return std::array<float, kTaps>{static_cast<float>(a), static_cast<float>(b),
                                    static_cast<float>(c), static_cast<float>(d)};
  };
  return {.first = static_cast<int64_t>(whole) - 1,
          .count = kTaps,
          .value = each(((-0.5 * t + 1) * t - 0.5) * t, (1.5 * t - 2.5) * t * t + 1,
                        ((-1.5 * t + 2) * t + 0.5) * t, (0.5 * t - 0.5) * t * t),
          .slope = each((-1.5 * t + 2) * t - 0.5, (4.5 * t - 5) * t, (-4.5 * t + 4) * t + 0.5,
                        (1.5 * t - 1) * t)};
}

/// What is summed over pixels: the first picture, the second one moved, and the slopes of that.
enum Value { kFirst, kSecond, kByRow, kByColumn, kValues };

/// Sums over pixels of values, and of products of two of them, the later one first.
template <class Number>
struct Sums {
  std::array<Number, kValues> value = {};
  std::array<std::array<Number, kValues>, kValues> product = {};
};

/// How the values go together, of all pixels.
struct Moments {
  double pixels = 0;
  Sums<double> sums;

  /// The sum of products of what differs from the means.
  double Of(Value one, Value other) const {
    return sums.product[std::max(one, other)][std::min(one, other)] -
           sums.value[one] * sums.value[other] / pixels;
  }
};

using Lines = std::array<const float*, kValues>;

void AddLine(const Lines& lines, size_t count, Moments* to) {
  Sums<float> line;  // f32 is enough for one line, whose values have a mean near 0
  for (size_t i = 0; i < count; ++i) {
#pragma GCC unroll 4
    for (size_t one = 0; one < kValues; ++one) {
      line.value[one] += lines[one][i];
#pragma GCC unroll 4
      for (size_t other = 0; other <= one; ++other)
        line.product[one][other] += lines[one][i] * lines[other][i];
    }
  }
  to->pixels += static_cast<double>(count);
  for (size_t one = 0; one < kValues; ++one) {
    to->sums.value[one] += static_cast<double>(line.value[one]);
    for (size_t other = 0; other <= one; ++other)
      to->sums.product[one][other] += static_cast<double>(line.product[one][other]);
  }
}

/// Pixels of the first pictures that the second ones show at all shifts that are tried.
struct Window {
  int64_t row = 0, column = 0, rows = 0, columns = 0;
};

class ShiftFit {
 public:
  ShiftFit(const std::vector<Picture>& first, const std::vector<Picture>& second,
           const TileShift& near, const ShiftAxes& axes)
      : first_(first),
        second_(second),
        axes_(axes),
        row_(std::llround(near.row)),
        column_(std::llround(near.column)) {
    const Picture &a = first.front(), &b = second.front();
    const int64_t rows = axes.rows ? kMargin : 0, columns = axes.columns ? kMargin : 0;
    window_.row = std::max<int64_t>(0, row_ + rows);
    window_.rows = std::min(a.rows, b.rows + row_ - rows) - window_.row;
    window_.column = std::max<int64_t>(0, column_ + columns);
    window_.columns = std::min(a.columns, b.columns + column_ - columns) - window_.column;
  }

  double pixels() const {
    return static_cast<double>(std::max<int64_t>(0, window_.rows)) *
           static_cast<double>(std::max<int64_t>(0, window_.columns));
  }
  /// Whether a shift is within a pixel of the whole one.
  bool Inside(const TileShift& shift) const {
    return std::abs(shift.row - static_cast<double>(row_)) < 1 &&
           std::abs(shift.column - static_cast<double>(column_)) < 1;
  }
  /// From `shift` towards the best one. Nothing where the pictures do not tell.
  std::optional<TileShift> StepFrom(const TileShift& shift) const {
    const Moments m = MomentsAt(shift);
    const double factor = m.Of(kFirst, kSecond) / m.Of(kSecond, kSecond);
    if (!(factor > 0) || !std::isfinite(factor)) return std::nullopt;
    // Minus: a larger shift reads further back in the second picture.
    const double row = -(m.Of(kFirst, kByRow) - factor * m.Of(kSecond, kByRow)) / factor,
                 column = -(m.Of(kFirst, kByColumn) - factor * m.Of(kSecond, kByColumn)) / factor,
                 rows = m.Of(kByRow, kByRow), columns = m.Of(kByColumn, kByColumn),
                 both = m.Of(kByRow, kByColumn), determinant = rows * columns - both * both;
    TileShift step;
    if (axes_.rows && axes_.columns) {
      step = {.row = (columns * row - both * column) / determinant,
              .column = (rows * column - both * row) / determinant};
    } else if (axes_.rows) {
      step.row = row / rows;
    } else if (axes_.columns) {
      step.column = column / columns;
    }
    if (!std::isfinite(step.row) || !std::isfinite(step.column)) return std::nullopt;
    return step;
  }

 private:
  Moments MomentsAt(const TileShift& shift) const {
    const Taps rows = axes_.rows ? TapsAt(static_cast<double>(row_) - shift.row) : Taps(),
               columns =
                   axes_.columns ? TapsAt(static_cast<double>(column_) - shift.column) : Taps();
    const auto width = static_cast<size_t>(window_.columns);
    const size_t wide = width + static_cast<size_t>(columns.count - 1);
    std::vector<float> value(wide), slope(wide), b(width), r(width), c(width);
    Moments moments;
    for (size_t i = 0; i < first_.size(); ++i) {
      for (int64_t row = window_.row; row < window_.row + window_.rows; ++row) {
        std::ranges::fill(value, 0.0F);
        std::ranges::fill(slope, 0.0F);
        for (int tap = 0; tap < rows.count; ++tap) {
          const float* from = second_[i].row(row - row_ + rows.first + tap) + window_.column -
                              column_ + columns.first;
          const auto at = static_cast<size_t>(tap);
          for (size_t x = 0; x < wide; ++x) {
            value[x] += rows.value[at] * from[x];
            slope[x] += rows.slope[at] * from[x];
          }
        }
        for (size_t x = 0; x < width; ++x) {
          float of_b = 0, of_r = 0, of_c = 0;
          for (size_t tap = 0; tap < static_cast<size_t>(columns.count); ++tap) {
            of_b += columns.value[tap] * value[x + tap];
            of_r += columns.value[tap] * slope[x + tap];
            of_c += columns.slope[tap] * value[x + tap];
          }
          b[x] = of_b;
          r[x] = of_r;
          c[x] = of_c;
        }
        AddLine({first_[i].row(row) + window_.column, b.data(), r.data(), c.data()}, width,
                &moments);
      }
    }
    return moments;
  }

  const std::vector<Picture>&first_, &second_;
  const ShiftAxes axes_;
  const int64_t row_, column_;  // the whole shift
  Window window_;
};

}  // namespace

std::optional<TileShift> RefinedShift(const std::vector<Picture>& first,
                                      const std::vector<Picture>& second, const TileShift& near,
                                      const ShiftAxes& axes, double least_pixels) {
  const ShiftFit fit(first, second, near, axes);
  if (fit.pixels() < std::max(1.0, least_pixels)) return std::nullopt;
  TileShift shift = near;
  for (int i = 0; i < kMostSteps; ++i) {
    const auto step = fit.StepFrom(shift);
    if (!step.has_value()) return std::nullopt;
    shift.row += step->row;
    shift.column += step->column;
    if (!fit.Inside(shift)) return std::nullopt;
    if (std::abs(step->row) < kSettled && std::abs(step->column) < kSettled) return shift;
  }
  return std::nullopt;
}

}  // namespace octavo::tomography
