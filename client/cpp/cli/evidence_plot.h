#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/cli/grey_canvas.h"

// What the pictures of evidence are made of: plots and pictures on one page.
namespace octavo::cli {

constexpr int64_t kPageColumns = 960, kMargin = 12;

/// A plot of numbers over columns, rows or a number of things, on a part of the page.
class Plot {
 public:
  struct Axis {
    double least = 0, most = 1;
  };
  /// `ends`: whether the numbers at both ends of x are written below.
  Plot(GreyCanvas& page, int64_t top, int64_t left, int64_t columns, const std::string& title,
       Axis x, Axis y, bool ends = true);
  static int64_t rows();

  double Row(double y) const;
  double Column(double x) const;
  bool Holds(double x) const { return x >= x_.least && x <= x_.most; }
  void Curve(const std::vector<double>& x, const std::vector<double>& y);
  /// A dashed line upright at x, with a text at its head.
  void Upright(double x, const std::string& text);
  /// A bar from the lower end to y, with a text below; filled, or its frame alone. A y that is not
  /// finite has no bar.
  void Bar(double x, double half_width, double y, bool filled, const std::string& text);

 private:
  GreyCanvas& page_;
  const int64_t top_, left_, columns_;
  const Axis x_, y_;
};

/// The range of finite values, a little wider; never empty.
Plot::Axis RangeOf(const std::vector<double>& values, double wider);

/// A picture [rows, columns] as large as fits into `most_columns` of the page.
class Tile {
 public:
  Tile(int64_t rows, int64_t columns, double most_columns = (kPageColumns - 4 * kMargin) / 3.0);
  int64_t height() const { return Size(along_, rows_); }
  int64_t width() const { return Size(across_, columns_); }
  /// With its title.
  int64_t rows() const;

  void Draw(GreyCanvas& page, int64_t top, int64_t left, const std::string& title,
            const std::vector<uint8_t>& greys) const;
  /// A dashed line at the column `axes` of each row.
  void DrawAxis(GreyCanvas& page, int64_t top, int64_t left, const std::vector<double>& axes) const;

 private:
  static int64_t Size(double scale, int64_t count);
  // The mean of the pixels that a pixel of the page covers.
  uint8_t Mean(const std::vector<uint8_t>& greys, int64_t row, int64_t column) const;

  const int64_t rows_, columns_;
  double across_ = 1, along_ = 1;  // pixels of the page for one of the picture
};

/// The difference with 0 as the middle grey, four times as strong as the contrast of `first`, so
/// that noise stays grey and what an axis leaves shows.
std::vector<uint8_t> DifferenceGreys(const std::vector<float>& first,
                                     const std::vector<float>& mirrored);

}  // namespace octavo::cli
