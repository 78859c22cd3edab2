#include "server/picture/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <png.h>
#include <vector>

#include "absl/strings/str_format.h"

#include "gpu/base/pixel_text.h"
#include "server/picture/drawing.h"

namespace octavo::picture {
namespace plot {  // unity builds: keeps the names local to this file
namespace {

constexpr int kWidth = 1120, kHeight = 600, kMostDrawn = 1 << 18, kTextSize = 2;

struct Colour {
  uint8_t r, g, b;
};
constexpr Colour kInk{40, 40, 40}, kGrid{225, 225, 225}, kActive{31, 98, 180},
    kFlyback{240, 140, 30};

class Canvas {
 public:
  Canvas() : pixels_(static_cast<size_t>(kWidth * kHeight * 3), 255) {}

  void Dot(int x, int y, Colour c) {
    if (x < 0 || y < 0 || x >= kWidth || y >= kHeight) return;
    uint8_t* p = pixels_.data() + (static_cast<size_t>(y) * kWidth + static_cast<size_t>(x)) * 3;
    p[0] = c.r, p[1] = c.g, p[2] = c.b;
  }
  void Line(double x0, double y0, double x1, double y1, Colour c) {
    const int steps =
        static_cast<int>(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0)))) + 1;
    for (int i = 0; i <= steps; ++i) {
      const double u = static_cast<double>(i) / steps;
      Dot(static_cast<int>(std::lround(x0 + u * (x1 - x0))),
          static_cast<int>(std::lround(y0 + u * (y1 - y0))), c);
    }
  }
  void Text(int x, int y, const std::string& text, Colour c) {
    ForEachTextSquare(text, [&](int64_t row, int64_t column) {
      for (int i = 0; i < kTextSize * kTextSize; ++i) {
        Dot(x + static_cast<int>(column) * kTextSize + i % kTextSize,
            y + static_cast<int>(row) * kTextSize + i / kTextSize, c);
      }
    });
  }
  static int WidthOf(const std::string& text) {
    return static_cast<int>(TextWidth(text)) * kTextSize;
  }

  absl::StatusOr<std::string> Png() const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = kWidth;
    image.height = kHeight;
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    std::string out(size, '\0');
    if (png_image_write_to_memory(&image, out.data(), &size, 0, pixels_.data(), 0, nullptr) == 0) {
      return absl::InternalError(std::string("PNG: ") + image.message);
    }
    out.resize(size);
    return out;
  }

 private:
  std::vector<uint8_t> pixels_;
};

struct Panel {
  int left, top, width, height;
  double x_lo, x_hi, y_lo, y_hi;
  double X(double x) const { return left + (x - x_lo) / (x_hi - x_lo) * width; }
  double Y(double y) const { return top + height - (y - y_lo) / (y_hi - y_lo) * height; }

  void Frame(Canvas& canvas, const std::string& x_name, const std::string& y_name) const {
    const double step_x = NiceStep(x_hi - x_lo, width / 90.0),
                 step_y = NiceStep(y_hi - y_lo, height / 50.0);
    for (const double v : MultiplesOf(step_x, x_lo, x_hi)) {
      canvas.Line(X(v), top, X(v), top + height, kGrid);
      const std::string text = absl::StrFormat("%g", v);
      canvas.Text(static_cast<int>(X(v)) - Canvas::WidthOf(text) / 2, top + height + 6, text, kInk);
    }
    for (const double v : MultiplesOf(step_y, y_lo, y_hi)) {
      canvas.Line(left, Y(v), left + width, Y(v), kGrid);
      const std::string text = absl::StrFormat("%g", v);
      canvas.Text(left - Canvas::WidthOf(text) - 6, static_cast<int>(Y(v)) - 7, text, kInk);
    }
    for (const int edge : {left, left + width}) canvas.Line(edge, top, edge, top + height, kInk);
    for (const int edge : {top, top + height}) canvas.Line(left, edge, left + width, edge, kInk);
    canvas.Text(left + width - Canvas::WidthOf(x_name), top + height + 26, x_name, kInk);
    canvas.Text(left, top - 20, y_name, kInk);
  }
};

// Add a small margin, and never return an empty range.
void Widen(double& lo, double& hi) {
  const double room =
      std::max(0.04 * (hi - lo), 1e-6 * std::max({1e-3, std::abs(lo), std::abs(hi)}));
  lo -= room;
  hi += room;
}

absl::StatusOr<std::string> Plot(const pattern::PatternWaveform& wave) {
  if (wave.x.empty()) return absl::InternalError("a waveform without samples");
  const auto [x_least, x_most] = std::minmax_element(wave.x.begin(), wave.x.end());
  const auto [y_least, y_most] = std::minmax_element(wave.y.begin(), wave.y.end());
  double x_lo = *x_least, x_hi = *x_most, y_lo = *y_least, y_hi = *y_most;
  Widen(x_lo, x_hi);
  Widen(y_lo, y_hi);
  const double half = 0.5 * std::max(x_hi - x_lo, y_hi - y_lo), x_mid = 0.5 * (x_lo + x_hi),
               y_mid = 0.5 * (y_lo + y_hi);
  const double seconds = wave.rate_hz > 0 ? static_cast<double>(wave.x.size()) / wave.rate_hz : 0;
  const double scale = seconds == 0 ? 1 : seconds < 2 ? 1e3 : 1;
  const double span = seconds == 0 ? static_cast<double>(wave.x.size()) : seconds * scale;
  const std::string time = seconds == 0  ? "record"
                           : seconds < 2 ? "t / ms"
                                         : "t / s",
                    unit = std::string(" / ") + wave.unit;
  const Panel plane{.left = 80,
                    .top = 40,
                    .width = 500,
                    .height = 500,
                    .x_lo = x_mid - half,
                    .x_hi = x_mid + half,
                    .y_lo = y_mid - half,
                    .y_hi = y_mid + half};
  const Panel x_time{.left = 680,
                     .top = 40,
                     .width = 410,
                     .height = 200,
                     .x_lo = 0,
                     .x_hi = span,
                     .y_lo = x_lo,
                     .y_hi = x_hi};
  const Panel y_time{.left = 680,
                     .top = 340,
                     .width = 410,
                     .height = 200,
                     .x_lo = 0,
                     .x_hi = span,
                     .y_lo = y_lo,
                     .y_hi = y_hi};
  Canvas canvas;
  plane.Frame(canvas, "x" + unit, "y" + unit);
  x_time.Frame(canvas, time, "x" + unit);
  y_time.Frame(canvas, time, "y" + unit);
  canvas.Text(300, 14, "A-scans", kActive);
  canvas.Text(410, 14, "flyback", kFlyback);
  const size_t stride = wave.x.size() / kMostDrawn + 1;
  const double tick = span / static_cast<double>(wave.x.size());
  // Draw the flyback first, so that it does not hide the A-scans.
  for (const bool active : {false, true}) {
    for (size_t i = 0; i < wave.x.size(); i += stride) {
      const size_t next = std::min(i + stride, wave.x.size() - 1);
      const bool is_active = wave.placement[i] >= 0 && wave.placement[next] >= 0;
      if (is_active != active) continue;
      const Colour colour = active ? kActive : kFlyback;
      const double t0 = tick * static_cast<double>(i), t1 = tick * static_cast<double>(next);
      canvas.Line(plane.X(wave.x[i]), plane.Y(wave.y[i]), plane.X(wave.x[next]),
                  plane.Y(wave.y[next]), colour);
      canvas.Line(x_time.X(t0), x_time.Y(wave.x[i]), x_time.X(t1), x_time.Y(wave.x[next]), colour);
      canvas.Line(y_time.X(t0), y_time.Y(wave.y[i]), y_time.X(t1), y_time.Y(wave.y[next]), colour);
    }
  }
  return canvas.Png();
}

}  // namespace
}  // namespace plot

absl::StatusOr<std::string> PlotPattern(const pattern::PatternWaveform& waveform) {
  return plot::Plot(waveform);
}

}  // namespace octavo::picture
