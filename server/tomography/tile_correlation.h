#pragma once

#include <cstdint>
#include <vector>

// How two pictures of the same thing lie to each other, by the correlation of what both show.
namespace octavo::tomography {

struct Picture {
  int64_t rows = 0, columns = 0;
  std::vector<float> pixels;  // [row, column]
  float* row(int64_t r) { return pixels.data() + r * columns; }
  const float* row(int64_t r) const { return pixels.data() + r * columns; }
};

/// Pixel u of the first picture shows what pixel u − lag of the second one does. A lag is looked
/// for within `most` of the middle of the range, along each axis; 0 = it is known.
struct LagRange {
  int64_t row = 0, column = 0;  // the middle
  int64_t most_rows = 0, most_columns = 0;
};

/// Why a lag is not known along either axis.
enum class LagDoubt : uint8_t {
  kNone,
  kNothingCommon,  // no lag at which the pictures correlate
  kTooSmall,       // they do, but over so few pixels other pictures could, too
  kAtEnd,          // they fit best at the end of the range
  kManyFit,        // they fit as well a few pixels further on
};

struct FoundLag {
  double row = 0, column = 0;  // the middle of the range where the pictures do not tell
  bool row_known = false, column_known = false;
  /// −1 … 1, of structures of a few pixels: at this lag; along no axis known: the largest one.
  double correlation = 0;
  double needed = 0;  // correlation from which on it stands out of what noise would give
  LagDoubt doubt = LagDoubt::kNothingCommon;
};

/// The mean of each value and its two neighbours to either side along both axes, by the weights
/// 1 4 6 4 1; beyond the ends the outermost value goes on.
void Smooth(Picture& picture);

/// The lag at which the structures of all pairs of pictures, each as large as the first of its
/// kind, correlate best, to a part of a pixel. Along an axis it is known only where the correlation
/// stands out of what noise would give, is not at the end of the range, and falls to both sides.
FoundLag FindLag(std::vector<Picture> first, std::vector<Picture> second, const LagRange& range);

}  // namespace octavo::tomography
