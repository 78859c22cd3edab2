#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/frame.h"
#include "server/picture/colour_map.h"

namespace octavo::picture {

/// The checked form of octavo.v1.ImageOptions. Together with the encoding it identifies a picture
/// of a frame. kRaw only rotates and shrinks.
struct ImageOptions {
  enum class Encoding : uint8_t { kRaw, kPng, kJpeg, kWebp };
  enum class Contrast : uint8_t { kDisplay, kLevels, kPercentiles };
  static constexpr int64_t kMostPixels = 65500;      // pixels a side, the limit of JPEG
  static constexpr int64_t kMostWebpPixels = 16383;  // the same of WebP
  static constexpr float kDarkPercentile = 1,
                         kBrightPercentile = 99.8f;  // default contrast

  Encoding encoding = Encoding::kPng;
  ColourMap colour_map = ColourMap::kGray;
  Contrast contrast = Contrast::kDisplay;
  float lo = 0, hi = 0;  // value units or percentiles
  int64_t max_width = kMostPixels, max_height = kMostPixels;
  bool square_pixels = false, depth_down = false, scale_bar = false, colour_bar = false;
  int quality = 85;  // kJpeg, kWebp (100: exact)
  auto operator<=>(const ImageOptions&) const = default;
};

/// A frame as a file in memory (kRaw: as an array), and the header fields that differ from the
/// frame's.
struct Picture {
  model::Bytes data;
  DType dtype = DType::kU8;    // type of the shown values
  std::vector<int64_t> shape;  // [rows, columns], the colour bar's included
  std::vector<std::string> axes;
  std::vector<double> spacing_um;
  double display_lo = 0, display_hi = 0;  // stored units
  double scale_bar_um = 0;
  int64_t colour_bar_columns = 0;
  std::vector<std::string> warnings;  // what may not be as intended, for people
};

/// Turns an image frame into a picture: milliseconds of work, seconds for a large one. Cancelled
/// once `unwanted` (may be null; must not block) says that nobody waits for it; it is asked between
/// the steps, and while a WEBP is made. InvalidArgument if the frame is no image, ResourceExhausted
/// above 2^28 values.
absl::StatusOr<Picture> MakePicture(const model::Frame& frame, const ImageOptions& options,
                                    const std::function<bool()>& unwanted = nullptr);

/// Host memory that a frame of this size and MakePicture take together at most, roughly; bytes.
int64_t PeakBytesOf(int64_t rows, int64_t columns, DType dtype, const ImageOptions& options);

/// 8-bit pixels, [row, column, channel]; one channel (grey) or three (red, green, blue).
struct Pixels {
  int64_t rows = 0, columns = 0;
  int channels = 1;
  std::vector<uint8_t> data;
};

/// Draws a white bar with a dark rim and its length as a label at the bottom right: the largest of
/// 1, 2, 5, 10, ... um that is at most a third of the width. Returns the length in um, or 0 if a
/// bar of eight pixels does not fit.
double DrawScaleBar(double um_per_column, Pixels* pixels);

/// Most columns that a colour bar takes.
constexpr int64_t kMostColourBarColumns = 600;
/// Adds the colours as a bar on the right, bright at the top, with numbers (the ends and round ones
/// between) and the unit. `dark`, `bright`: the values of the ends. Returns the columns added, or 0
/// if the picture is too low for it.
int64_t AddColourBar(ColourMap map, double dark, double bright, const std::string& unit,
                     Pixels* pixels);

}  // namespace octavo::picture
