#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

/// A white page on which a program draws in grey: text, lines, and pictures. What lies beyond the
/// page is left out.
class GreyCanvas {
 public:
  GreyCanvas(int64_t rows, int64_t columns);

  void Set(int64_t row, int64_t column, uint8_t grey);
  /// In the font of gpu/base/pixel_text.h, its squares `size` pixels wide.
  void Text(int64_t row, int64_t column, std::string_view text, int64_t size = 1);
  void Line(double row0, double column0, double row1, double column1, uint8_t grey);
  /// The frame of a rectangle.
  void Frame(int64_t row, int64_t column, int64_t rows, int64_t columns, uint8_t grey);
  /// A square of (2 half + 1)^2 pixels; its frame alone if it is not filled.
  void Mark(double row, double column, int64_t half, bool filled, uint8_t grey);
  bool Write(const std::string& path) const;

 private:
  const int64_t rows_, columns_;
  std::vector<uint8_t> greys_;
};

}  // namespace octavo::cli
