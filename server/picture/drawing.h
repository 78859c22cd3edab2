#pragma once

// Private to this folder: what bars and plots are drawn with.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/base/pixel_text.h"
#include "server/picture/image.h"

namespace octavo::picture {

/// Draws in grey on pixels of one or three channels; what lies outside is left out.
class Painter {
 public:
  explicit Painter(Pixels* pixels) : pixels_(*pixels) {}

  void Rectangle(int64_t row, int64_t column, int64_t rows, int64_t columns, uint8_t level) {
    Rectangle(row, column, rows, columns, Rgb{level, level, level});
  }
  void Rectangle(int64_t row, int64_t column, int64_t rows, int64_t columns, Rgb colour) {
    const uint8_t levels[3] = {colour.red, colour.green, colour.blue};
    for (int64_t r = std::max<int64_t>(row, 0); r < std::min(row + rows, pixels_.rows); ++r) {
      for (int64_t c = std::max<int64_t>(column, 0);
           c < std::min(column + columns, pixels_.columns); ++c) {
        for (int i = 0; i < pixels_.channels; ++i)
          pixels_.data[static_cast<size_t>((r * pixels_.columns + c) * pixels_.channels + i)] =
              levels[i];
      }
    }
  }
  /// Each square of the font is `size` pixels, grown by `rim`.
  void Text(const std::string& text, int64_t row, int64_t column, int64_t size, int64_t rim,
            uint8_t level) {
    ForEachTextSquare(text, [&](int64_t r, int64_t c) {
      Rectangle(row + r * size - rim, column + c * size - rim, size + 2 * rim, size + 2 * rim,
                level);
    });
  }

 private:
  Pixels& pixels_;
};

/// A step of 1, 2 or 5 times a power of ten, so that a span has about `wanted` steps.
inline double NiceStep(double span, double wanted) {
  const double raw = span / wanted, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= raw * (1 - 1e-9)) return nice * power;
  }
  return 10 * power;
}

/// The multiples of `step` from `lo` to `hi`, rising. None if the numbers there are too large for
/// multiples to differ from their neighbours, or if there are more than can be drawn.
inline std::vector<double> MultiplesOf(double step, double lo, double hi) {
  constexpr double kMostExact = 4503599627370496, kMost = 1 << 16;  // 2^52
  const double first = std::ceil(lo / step), last = std::floor(hi / step), count = last - first + 1;
  // Written so that infinities and NaN give none, too.
  const bool drawn =
      count >= 1 && count <= kMost && std::abs(first) <= kMostExact && std::abs(last) <= kMostExact;
  std::vector<double> multiples(drawn ? static_cast<size_t>(count) : 0);
  for (size_t i = 0; i < multiples.size(); ++i)
    multiples[i] = (first + static_cast<double>(i)) * step + 0.0;  // 0, not -0
  return multiples;
}

}  // namespace octavo::picture
