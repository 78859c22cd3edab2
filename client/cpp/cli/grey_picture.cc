#include "client/cpp/cli/grey_picture.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <png.h>
#include <utility>

#include "gpu/base/pixel_text.h"

namespace octavo::cli {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 26, kMostSide = 16384, kGap = 4, kLines = 2;
constexpr int64_t kLeastWidth = 16 * kGlyphPitch;  // of a tile: sixteen characters
constexpr uint8_t kPaper = 255, kInk = 0;

// The size of the font's squares on a tile of this width, and the height of the strip for two lines
// above it.
int64_t TextSize(int64_t width) { return std::max<int64_t>(1, width / (2 * kLeastWidth)); }
int64_t StripHeight(int64_t width) { return TextSize(width) * (kLines * (kGlyphHeight + 3) + 2); }

int64_t Divided(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

GreyWindow WindowOf(const std::vector<float>& values) {
  std::vector<float> finite;
  finite.reserve(values.size());
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](float v) { return std::isfinite(v); });
  if (finite.empty()) return {};
  const auto at = [&](double part) {
    const auto nth = finite.begin() + std::lround(part * static_cast<double>(finite.size() - 1));
    std::nth_element(finite.begin(), nth, finite.end());
    return *nth;
  };
  const float black = at(0.002);
  return {.black = black, .white = std::max(at(0.998), std::nextafter(black, HUGE_VALF))};
}

std::vector<uint8_t> GreysOf(const std::vector<float>& values, const GreyWindow& window) {
  const auto [lo, hi] = window;
  std::vector<uint8_t> greys(values.size());
  std::transform(values.begin(), values.end(), greys.begin(), [lo = lo, hi = hi](float v) {
    return std::isfinite(v) ? static_cast<uint8_t>(
                                  std::lround(std::clamp(255 * (v - lo) / (hi - lo), 0.0f, 255.0f)))
                            : uint8_t{0};
  });
  return greys;
}

std::vector<uint8_t> GreysOf(const std::vector<float>& values) {
  return GreysOf(values, WindowOf(values));
}

bool WritePng(const std::string& path, const std::vector<uint8_t>& greys, int64_t rows,
              int64_t columns) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(columns);
  image.height = static_cast<png_uint_32>(rows);
  image.format = PNG_FORMAT_GRAY;
  return png_image_write_to_file(&image, path.c_str(), 0, greys.data(), 0, nullptr) != 0;
}

Montage::Montage(int64_t tiles, int64_t rows, int64_t columns)
    : rows_(rows), columns_(columns), count_(std::max<int64_t>(tiles, 1)) {
  across_ = std::clamp<int64_t>(
      std::lround(std::sqrt(static_cast<double>(count_) * static_cast<double>(rows) /
                            static_cast<double>(columns))),
      1, count_);
  enlarge_ = std::max<int64_t>(1, Divided(kLeastWidth, columns));
  const auto fits = [&] {
    const int64_t width = Divided(columns_, shrink_) * enlarge_,
                  height = Divided(rows_, shrink_) * enlarge_;
    const int64_t wide = across_ * (width + kGap),
                  high = Divided(count_, across_) * (height + StripHeight(width) + kGap);
    return wide <= kMostSide && high <= kMostSide && wide * high <= kMostPixels;
  };
  while (!fits() && Divided(columns_, shrink_) > kLeastWidth) ++shrink_;
}

void Montage::Add(const std::vector<float>& values, std::vector<std::string> caption) {
  const int64_t rows = Divided(rows_, shrink_), columns = Divided(columns_, shrink_);
  std::vector<float> tile(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      int64_t n = 0;
      for (int64_t r = row * shrink_; r < std::min((row + 1) * shrink_, rows_); ++r) {
        for (int64_t c = column * shrink_; c < std::min((column + 1) * shrink_, columns_);
             ++c, ++n) {
          sum += static_cast<double>(values[static_cast<size_t>(r * columns_ + c)]);
        }
      }
      tile[static_cast<size_t>(row * columns + column)] =
          static_cast<float>(sum / static_cast<double>(n));
    }
  }
  tiles_.push_back(std::move(tile));
  captions_.push_back(std::move(caption));
}

bool Montage::Write(const std::string& path) const {
  std::vector<float> all;
  for (const auto& tile : tiles_) all.insert(all.end(), tile.begin(), tile.end());
  const std::vector<uint8_t> greys = GreysOf(all);
  const int64_t rows = Divided(rows_, shrink_), columns = Divided(columns_, shrink_);
  const int64_t width = columns * enlarge_, height = rows * enlarge_, strip = StripHeight(width),
                size = TextSize(width);
  const int64_t page_columns = across_ * (width + kGap),
                page_rows = Divided(count_, across_) * (height + strip + kGap);
  std::vector<uint8_t> page(static_cast<size_t>(page_rows * page_columns), kPaper);
  const auto pixel = [&](int64_t row, int64_t column) -> uint8_t& {
    return page[static_cast<size_t>(row * page_columns + column)];
  };
  for (int64_t i = 0; i < std::ssize(tiles_); ++i) {
    const int64_t top = i / across_ * (height + strip + kGap), left = i % across_ * (width + kGap);
    for (int64_t line = 0; line < std::ssize(captions_[static_cast<size_t>(i)]); ++line) {
      const std::string& text = captions_[static_cast<size_t>(i)][static_cast<size_t>(line)];
      if (line >= kLines || TextWidth(text) * size > width) continue;
      ForEachTextSquare(text, [&](int64_t row, int64_t column) {
        for (int64_t r = 0; r < size; ++r) {
          for (int64_t c = 0; c < size; ++c)
            pixel(top + (2 + line * (kGlyphHeight + 3) + row) * size + r,
                  left + column * size + c) = kInk;
        }
      });
    }
    for (int64_t row = 0; row < height; ++row) {
      for (int64_t column = 0; column < width; ++column) {
        pixel(top + strip + row, left + column) =
            greys[static_cast<size_t>((i * rows + row / enlarge_) * columns + column / enlarge_)];
      }
    }
  }
  return WritePng(path, page, page_rows, page_columns);
}

}  // namespace octavo::cli
