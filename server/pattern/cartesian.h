#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "server/pattern/pattern.h"

namespace octavo::pattern {

/// A regular grid on the sample for resampling a volume. Zeros mean the default: the square around
/// the pattern, about as many rows and columns as the pattern resolves.
struct CartesianGrid {
  int64_t rows = 0, columns = 0;  // y, x
  double extent_x_mm = 0, extent_y_mm = 0;
  double centre_x_mm = 0, centre_y_mm = 0;  // set by ResolveGrid: the pattern's offset
  double reach_mm = 0;  // Lissajous, freeform: farther records do not count; 0 = 4 mean pitches
};

/// The A-scans that contribute to each point of a grid: [rows * columns, taps].
struct CartesianTaps {
  int64_t taps = 0;
  std::vector<int32_t> index;  // A-scan of the stored volume, or -1
  std::vector<float> weight;   // sum to 1 where the pattern covers the point
};

/// Fills in the zeros. InvalidArgument names the field of `field` ("operations[0].cartesian.") at
/// fault; rasters are refused: they are Cartesian already.
absl::Status ResolveGrid(const Pattern& pattern, const std::string& field, CartesianGrid* grid);

/// Radial: bilinear in angle and radius, the earlier of the two nearest records with the weight 1 -
/// t, the later with t; repeats count alike. Spiral: bilinear between two turns and two records of
/// each. Lissajous and freeform: inverse squared distance over the 4 nearest records within reach.
/// Points that the pattern does not cover have no taps. `missing` A-scans (sorted ranges first,
/// count) are left out.
CartesianTaps MakeCartesianTaps(const Pattern& pattern, const CartesianGrid& grid,
                                const std::vector<std::pair<int64_t, int64_t>>& missing);

}  // namespace octavo::pattern
