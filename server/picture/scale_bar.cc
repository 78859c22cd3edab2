#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

#include "server/picture/drawing.h"
#include "server/picture/image.h"

namespace octavo::picture {
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
  const int64_t size = std::max<int64_t>(
      1, std::min(pixels->columns / 256, pixels->rows / 96));  // pixels per square of the font
  const int64_t thick = 2 * size, margin = kMargin * size;
  if (length < kShortest || pixels->rows < thick + 2 * margin ||
      pixels->columns < length + 2 * margin)
    return 0;

  Painter painter(pixels);
  const int64_t bar_row = pixels->rows - margin - thick,
                bar_column = pixels->columns - margin - length;
  painter.Rectangle(bar_row - size, bar_column - size, thick + 2 * size, length + 2 * size, 0);
  painter.Rectangle(bar_row, bar_column, thick, length, 255);
  // Powers of ten are whole numbers of their unit from 1 nm up to 999 mm.
  const std::string label = length_um >= 1000 ? absl::StrCat(std::llround(length_um / 1000), " mm")
                            : length_um >= 1  ? absl::StrCat(std::llround(length_um), " um")
                                              : absl::StrCat(std::llround(length_um * 1000), " nm");
  const int64_t label_width = TextWidth(label) * size;
  const int64_t label_row = bar_row - (kGlyphHeight + 3) * size;
  // Centred above the bar, but within the picture.
  const int64_t label_column =
      std::min(bar_column + (length - label_width) / 2, pixels->columns - margin - label_width);
  if (label_row >= size && label_column >= size) {
    painter.Text(label, label_row, label_column, size, size, 0);
    painter.Text(label, label_row, label_column, size, 0, 255);
  }
  return length_um;
}

}  // namespace octavo::picture
