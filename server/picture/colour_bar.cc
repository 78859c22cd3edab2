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
// A tick lies within the bar: beside a number it would look like a minus sign.
constexpr int64_t kGap = 4, kBarWidth = 8, kTick = 2, kSpace = 3,
                  kLeastHeight = 3 * (kGlyphHeight + 2);
constexpr int64_t kMostSize = 7;  // pixels per square: kMostColourBarColumns

// Whether black is easier to see on the colour than white.
bool IsBright(Rgb colour) {
  return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue > 127;
}

// `digits` behind the point of numbers that a picture shows beside each other.
std::string NumberText(double value, int digits) {
  return std::abs(value) < 1e6 ? absl::StrFormat("%.*f", digits, value)
                               : absl::StrFormat("%.*g", 7, value);
}

// Digits behind the point by which numbers that are `step` apart differ.
int DigitsFor(double step) {
  constexpr double kMostDigits = 9;
  return static_cast<int>(std::clamp(std::ceil(-std::log10(step) - 1e-9), 0.0, kMostDigits));
}

// The numbers beside the bar and their places, 0 at the dark end to 1 at the bright one: the ends,
// and round numbers with room between them. `room`: of a number, as a part of the bar.
std::vector<std::pair<double, std::string>> Labels(double dark, double bright, double room) {
  // Numbers closer than this (relative) cannot be told apart by their digits.
  constexpr double kLeastSpan = 1e-9;
  const double span = std::abs(bright - dark), size = std::max(std::abs(dark), std::abs(bright));
  if (!(span > kLeastSpan * size) || !std::isfinite(span))
    return {{0, absl::StrFormat("%.10g", dark)}, {1, absl::StrFormat("%.10g", bright)}};
  const double step = NiceStep(span, 0.5 / room), lowest = std::min(dark, bright);
  // The ends are no round numbers; a tenth of a step is exact enough for them.
  const bool tiny = step < 1e-8;
  const auto text = [&](double value, int more) {
    return tiny ? absl::StrFormat("%.6g", value) : NumberText(value, DigitsFor(step) + more);
  };
  std::vector<std::pair<double, std::string>> labels = {{0, text(dark, 1)}, {1, text(bright, 1)}};
  for (const double value : MultiplesOf(step, lowest, lowest + span)) {
    const double place = (value - dark) / (bright - dark);
    if (place < room || place > 1 - room) continue;
    labels.emplace_back(place, text(value, 0));
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
  int64_t widest = TextWidth(unit) - kSpace - kBarWidth;  // it stands above the bar, too
  for (const auto& [place, label] : labels) widest = std::max(widest, TextWidth(label));

  const int64_t added = (kGap + kBarWidth + kSpace + std::max<int64_t>(widest, 0) + kGap) * size;
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
    const Rgb behind = table[static_cast<size_t>((top + height - 1 - row) * 255 / (height - 1))];
    painter.Rectangle(std::clamp(row - size / 2, top, top + height - size),
                      bar + (kBarWidth - kTick) * size, size, kTick * size,
                      IsBright(behind) ? 0 : 255);
    painter.Text(label, row - text / 2, bar + (kBarWidth + kSpace) * size, size, 0, 255);
  }
  if (!unit.empty()) painter.Text(unit, size, bar, size, 0, 255);
  *pixels = std::move(wide);
  return added;
}

}  // namespace octavo::picture
