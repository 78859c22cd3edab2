#pragma once

#include <cmath>
#include <cstdint>

#include "gpu/math/finite.h"
#include "gpu/math/host_device.h"
#include "gpu/math/rotation.h"
#include "gpu/math/sampling.h"

// A frame that is turned in its own plane, as the detector should have stood: shared by all
// backends. Source of the interpolation: R. Keys, "Cubic convolution interpolation for digital
// image processing", IEEE Transactions on Acoustics, Speech, and Signal Processing 29 (1981)
// 1153-1160, with a = -1/2.
namespace octavo::inline gpu::math {

/// Rows and columns that the interpolation reads beyond a position.
inline constexpr int64_t kTurnReach = 2;

/// A turn of the whole detector about its middle. A line of the given frame that moves by
/// tan(angle) columns per row is parallel to the columns of the turned one.
struct DetectorTurn {
  double sin = 0, cos = 1;
  double middle_row = 0, middle_column = 0;  // pixel indices of the detector
};

/// A position on the detector, as a pixel index.
struct DetectorPlace {
  double row = 0, column = 0;
};

/// The position in the given frame that the turned frame shows at (row, column); a row between two
/// pixels is one of a frame that was shifted as well. It has the same bits on every backend,
/// whichever rows a batch holds.
OCTAVO_HOST_DEVICE inline DetectorPlace PlaceBefore(const DetectorTurn& turn, double row,
                                                    int64_t column) {
  const double v = row - turn.middle_row, u = static_cast<double>(column) - turn.middle_column;
  return {.row = PositionPlus(turn.middle_row, PositionPlus(PositionTimes(v, turn.cos),
                                                            -PositionTimes(u, turn.sin))),
          .column = PositionPlus(turn.middle_column, PositionPlus(PositionTimes(u, turn.cos),
                                                                  PositionTimes(v, turn.sin)))};
}

/// The value of a frame at a position, by cubic convolution over 4 x 4 pixels. The frame [rows,
/// columns] holds the rows of the detector from `first_row` on. Beyond its ends the outermost pixel
/// goes on. If one of the pixels is not finite, the nearest pixel counts instead: a hole keeps its
/// size.
OCTAVO_HOST_DEVICE inline float ValueAt(const float* frame, int64_t rows, int64_t columns,
                                        int64_t first_row, const DetectorPlace& place) {
  const auto within = [](int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; };
  const double above = floor(place.row), left = floor(place.column);
  const int64_t r = static_cast<int64_t>(above) - first_row, c = static_cast<int64_t>(left);
  const auto down = static_cast<float>(place.row - above),
             right = static_cast<float>(place.column - left);
  float weights[4];
  int64_t at[4];
  for (int k = 0; k < 4; ++k) {
    weights[k] = KeysCubic(right + 1.0f - static_cast<float>(k));
    at[k] = within(c - 1 + k, columns);
  }
  float sum = 0;
  for (int k = 0; k < 4; ++k) {
    const float* const line = frame + within(r - 1 + k, rows) * columns;
    float part = 0;
    for (int m = 0; m < 4; ++m) part += weights[m] * line[at[m]];
    sum += KeysCubic(down + 1.0f - static_cast<float>(k)) * part;
  }
  if (IsFinite(sum)) return sum;
  return frame[within(down < 0.5f ? r : r + 1, rows) * columns +
               within(right < 0.5f ? c : c + 1, columns)];
}

}  // namespace octavo::inline gpu::math
