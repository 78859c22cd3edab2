#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

#include "server/picture/drawing.h"
#include "server/picture/image.h"

namespace octavo::picture {
namespace {

// In squares of the font.
constexpr int64_t kGap = 4, kBarWidth = 8, kTick = 3, kLeastHeight = 3 * (kGlyphHeight + 2);
constexpr int64_t kMostSize = 7;  // pixels per square: kMostColourBarColumns

std::string NumberText(double value) { return absl::StrFormat("%.4g", value); }

// The numbers beside the bar and their places, 0 at the dark end to 1 at the bright one: the ends,
// and round numbers with room between them. `room`: of a number, as a part of the bar.
std::vector<std::pair<double, std::string>> Labels(double dark, double bright, double room) {
  std::vector<std::pair<double, std::string>> labels = {{0, NumberText(dark)},
                                                        {1, NumberText(bright)}};
  const double span = std::abs(bright - dark);
  if (!(span > 0) || !std::isfinite(span)) return labels;
  const double step = NiceStep(span, 0.5 / room), lowest = std::min(dark, bright);
  for (const double value : MultiplesOf(step, lowest, lowest + span)) {
    const double place = (value - dark) / (bright - dark);
    if (place < room || place > 1 - room) continue;
    labels.emplace_back(place, NumberText(value));
  }
  return labels;
}

}  // namespace

int64_t AddColourBar(ColourMap map, double dark, double bright, const std::string& unit,
                     Pixels* pixels) {
  const int64_t size =
      std::clamp<int64_t>(std::min(pixels->columns / 256, pixels->rows / 96), 1, kMostSize);
  const int64_t text = kGlyphHeight * size, margin = text / 2 + size,
                top = unit.empty() ? margin : margin + text + 2 * size,
                height = pixels->rows - top - margin;
  if (height < kLeastHeight * size) return 0;
  const auto labels =
      Labels(dark, bright, 1.5 * static_cast<double>(text) / static_cast<double>(height));
  int64_t widest = TextWidth(unit) - kTick - kBarWidth;  // it stands above the bar, too
  for (const auto& [place, label] : labels) widest = std::max(widest, TextWidth(label));

  const int64_t added = (kGap + kBarWidth + kTick + std::max<int64_t>(widest, 0) + kGap) * size;
  Pixels wide{.rows = pixels->rows,
              .columns = pixels->columns + added,
              .channels = pixels->channels,
              .data = {}};
  wide.data.resize(static_cast<size_t>(wide.rows * wide.columns * wide.channels));
  for (int64_t r = 0; r < wide.rows; ++r) {
    const auto row = pixels->data.begin() + r * pixels->columns * pixels->channels;
    std::copy(row, row + pixels->columns * pixels->channels,
              wide.data.begin() + r * wide.columns * wide.channels);
  }
  Painter painter(&wide);
  const int64_t bar = pixels->columns + kGap * size;
  const auto& table = ColourTable(map);
  for (int64_t r = 0; r < height; ++r) {
    const int64_t level = height == 1 ? 255 : (height - 1 - r) * 255 / (height - 1);
    painter.Rectangle(top + r, bar, 1, kBarWidth * size, table[static_cast<size_t>(level)]);
  }
  for (const auto& [place, label] : labels) {
    const int64_t row = top + std::llround((1 - place) * static_cast<double>(height - 1));
    painter.Rectangle(row - size / 2, bar + kBarWidth * size, size, 2 * size, 255);
    painter.Text(label, row - text / 2, bar + (kBarWidth + kTick) * size, size, 0, 255);
  }
  if (!unit.empty()) painter.Text(unit, size, bar, size, 0, 255);
  *pixels = std::move(wide);
  return added;
}

}  // namespace octavo::picture
