#include "client/cpp/cli/grey_canvas.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/cli/grey_picture.h"
#include "gpu/base/pixel_text.h"

namespace octavo::cli {

GreyCanvas::GreyCanvas(int64_t rows, int64_t columns)
    : rows_(rows), columns_(columns), greys_(static_cast<size_t>(rows * columns), UINT8_MAX) {}

void GreyCanvas::Set(int64_t row, int64_t column, uint8_t grey) {
  if (row >= 0 && row < rows_ && column >= 0 && column < columns_)
    greys_[static_cast<size_t>(row * columns_ + column)] = grey;
}

void GreyCanvas::Text(int64_t row, int64_t column, std::string_view text, int64_t size) {
  ForEachTextSquare(text, [&](int64_t r, int64_t c) {
    for (int64_t y = 0; y < size; ++y) {
      for (int64_t x = 0; x < size; ++x) Set(row + r * size + y, column + c * size + x, 0);
    }
  });
}

void GreyCanvas::Line(double row0, double column0, double row1, double column1, uint8_t grey) {
  const int64_t steps = std::max<int64_t>(
      1, std::lround(std::max(std::abs(row1 - row0), std::abs(column1 - column0))));
  for (int64_t i = 0; i <= steps; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(steps);
    Set(std::lround(row0 + part * (row1 - row0)), std::lround(column0 + part * (column1 - column0)),
        grey);
  }
}

void GreyCanvas::Frame(int64_t row, int64_t column, int64_t rows, int64_t columns, uint8_t grey) {
  for (int64_t c = column; c < column + columns; ++c) {
    Set(row, c, grey);
    Set(row + rows - 1, c, grey);
  }
  for (int64_t r = row; r < row + rows; ++r) {
    Set(r, column, grey);
    Set(r, column + columns - 1, grey);
  }
}

void GreyCanvas::Mark(double row, double column, int64_t half, bool filled, uint8_t grey) {
  const int64_t top = std::lround(row) - half, left = std::lround(column) - half;
  if (!filled) return Frame(top, left, 2 * half + 1, 2 * half + 1, grey);
  for (int64_t r = 0; r <= 2 * half; ++r) {
    for (int64_t c = 0; c <= 2 * half; ++c) Set(top + r, left + c, grey);
  }
}

bool GreyCanvas::Write(const std::string& path) const {
  return WritePng(path, greys_, rows_, columns_);
}

}  // namespace octavo::cli
