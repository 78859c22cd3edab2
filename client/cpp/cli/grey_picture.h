#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::cli {

/// The values that are black and white in a picture, black below white.
struct GreyWindow {
  float black = 0, white = 1;
};
/// From the 0.2th percentile to the 99.8th of all finite values; 0 to 1 if there are none.
GreyWindow WindowOf(const std::vector<float>& values);
/// Grey levels of numbers in a window; values that are not finite are black.
std::vector<uint8_t> GreysOf(const std::vector<float>& values, const GreyWindow& window);
/// The same in their own window.
std::vector<uint8_t> GreysOf(const std::vector<float>& values);

/// Writes a grey PNG file; returns whether that succeeded.
bool WritePng(const std::string& path, const std::vector<uint8_t>& greys, int64_t rows,
              int64_t columns);

/// Pictures of one size side by side, row after row, each below its caption, all with the same
/// contrast. Small ones are enlarged so that the captions have room, large ones shrunk so that the
/// whole stays below 2^26 pixels and 16384 on a side.
class Montage {
 public:
  Montage(int64_t tiles, int64_t rows, int64_t columns);
  /// Adds the next picture, [rows, columns]; leaves out a line of the caption that does not fit.
  void Add(const std::vector<float>& values, std::vector<std::string> caption);
  bool Write(const std::string& path) const;

  /// Pixels of a picture, along a side, that were combined into one.
  int64_t shrunk() const { return shrink_; }

 private:
  const int64_t rows_, columns_;  // size of a given picture
  int64_t across_ = 1, shrink_ = 1, enlarge_ = 1;
  std::vector<std::vector<float>> tiles_;  // shrunk, not enlarged
  std::vector<std::vector<std::string>> captions_;
  const int64_t count_;
};

}  // namespace octavo::cli
