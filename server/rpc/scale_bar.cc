#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

#include "server/rpc/image.h"

namespace octavo::rpc {
namespace {

// What a label can hold: digits and the units nm, µm, mm. Seven rows of five pixels, the leftmost in bit 4.
struct Glyph {
  char character;
  std::array<uint8_t, 7> rows;
};
constexpr int kGlyphWidth = 5, kGlyphHeight = 7;
constexpr Glyph kGlyphs[] = {{'0', {0x0E, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0E}}, {'1', {0x04, 0x0C, 0x04, 0x04, 0x04, 0x04, 0x0E}},
                             {'2', {0x0E, 0x11, 0x01, 0x06, 0x08, 0x10, 0x1F}}, {'3', {0x1F, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0E}},
                             {'4', {0x02, 0x06, 0x0A, 0x12, 0x1F, 0x02, 0x02}}, {'5', {0x1F, 0x10, 0x1E, 0x01, 0x01, 0x11, 0x0E}},
                             {'6', {0x06, 0x08, 0x10, 0x1E, 0x11, 0x11, 0x0E}}, {'7', {0x1F, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}},
                             {'8', {0x0E, 0x11, 0x11, 0x0E, 0x11, 0x11, 0x0E}}, {'9', {0x0E, 0x11, 0x11, 0x0F, 0x01, 0x02, 0x0C}},
                             {'m', {0x00, 0x00, 0x1A, 0x15, 0x15, 0x15, 0x15}}, {'n', {0x00, 0x00, 0x16, 0x19, 0x11, 0x11, 0x11}},
                             {'u', {0x00, 0x00, 0x12, 0x12, 0x12, 0x1D, 0x10}}};

class Painter {
 public:
  explicit Painter(Pixels* pixels) : pixels_(*pixels) {}

  void Rectangle(int64_t row, int64_t column, int64_t rows, int64_t columns, uint8_t level) {
    for (int64_t r = std::max<int64_t>(row, 0); r < std::min(row + rows, pixels_.rows); ++r) {
      for (int64_t c = std::max<int64_t>(column, 0); c < std::min(column + columns, pixels_.columns); ++c) {
        for (int i = 0; i < pixels_.channels; ++i) pixels_.data[static_cast<size_t>((r * pixels_.columns + c) * pixels_.channels + i)] = level;
      }
    }
  }
  /// Each glyph pixel is a square of `size`, grown by `rim`.
  void Text(const std::string& text, int64_t row, int64_t column, int64_t size, int64_t rim, uint8_t level) {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto* glyph = std::find_if(std::begin(kGlyphs), std::end(kGlyphs), [&](const Glyph& g) { return g.character == text[i]; });
      if (glyph == std::end(kGlyphs)) continue;  // a space
      for (int r = 0; r < kGlyphHeight; ++r) {
        for (int c = 0; c < kGlyphWidth; ++c) {
          if ((glyph->rows[static_cast<size_t>(r)] >> (kGlyphWidth - 1 - c) & 1) == 0) continue;
          Rectangle(row + r * size - rim, column + (static_cast<int64_t>(i) * (kGlyphWidth + 1) + c) * size - rim, size + 2 * rim, size + 2 * rim,
                    level);
        }
      }
    }
  }

 private:
  Pixels& pixels_;
};

}  // namespace

double DrawScaleBar(double um_per_column, Pixels* pixels) {
  constexpr int64_t kShortest = 8, kMargin = 4;
  if (!(um_per_column > 0) || !std::isfinite(um_per_column)) return 0;
  const double most_um = um_per_column * static_cast<double>(pixels->columns) / 3;
  const double decade = std::pow(10.0, std::floor(std::log10(most_um)));
  double length_um = decade;
  for (const double step : {2.0, 5.0}) {
    if (decade * step <= most_um) length_um = decade * step;
  }
  const int64_t length = std::llround(length_um / um_per_column);
  const int64_t size = std::max<int64_t>(1, std::min(pixels->columns / 256, pixels->rows / 96));  // of a glyph's pixel
  const int64_t thick = 2 * size, margin = kMargin * size;
  if (length < kShortest || pixels->rows < thick + 2 * margin || pixels->columns < length + 2 * margin) return 0;

  Painter painter(pixels);
  const int64_t bar_row = pixels->rows - margin - thick, bar_column = pixels->columns - margin - length;
  painter.Rectangle(bar_row - size, bar_column - size, thick + 2 * size, length + 2 * size, 0);
  painter.Rectangle(bar_row, bar_column, thick, length, 255);
  // Powers of ten are whole numbers of their unit from 1 nm up to 999 mm.
  const std::string label = length_um >= 1000 ? absl::StrCat(std::llround(length_um / 1000), " mm")
                            : length_um >= 1  ? absl::StrCat(std::llround(length_um), " um")
                                              : absl::StrCat(std::llround(length_um * 1000), " nm");
  const int64_t label_width = static_cast<int64_t>(label.size()) * (kGlyphWidth + 1) * size - size;
  const int64_t label_row = bar_row - (kGlyphHeight + 3) * size;
  // Centred above the bar, but within the picture.
  const int64_t label_column = std::min(bar_column + (length - label_width) / 2, pixels->columns - margin - label_width);
  if (label_row >= size && label_column >= size) {
    painter.Text(label, label_row, label_column, size, size, 0);
    painter.Text(label, label_row, label_column, size, 0, 255);
  }
  return length_um;
}

}  // namespace octavo::rpc
