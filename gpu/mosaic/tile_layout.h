#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"
#include "gpu/mosaic/mosaic_ops.h"

namespace octavo::inline gpu {

/// Lengths along z, y, x.
struct Vector3 {
  double at[3] = {0, 0, 0};
  double& operator[](int d) { return at[d]; }
  double operator[](int d) const { return at[d]; }
};

/// How tiles lie in an array. As octavo.v1.TileSource.
struct TileLayoutSpec {
  enum class Kind : uint8_t { kNone = 0, kStack = 1, kGrid = 2 };
  Kind kind = Kind::kNone;
  int64_t depth = 1;               // kStack
  int64_t tile_y = 0, tile_x = 0;  // kGrid
  Vector3 spacing_um{{1, 1, 1}};
};

/// Tiles of an array.
struct TileLayout {
  TileArray array;
  std::vector<TilePlace> tiles;
};
inline constexpr int64_t kMostTiles = 4096;

/// InvalidArgument names a field below `field`.
absl::StatusOr<TileLayout> LayOutTiles(const TileLayoutSpec& spec, const ArrayType& type,
                                       const std::string& field);
/// The same tiles in the means along z, f32.
TileLayout FlatLayout(const TileLayout& layout, const TileLayoutSpec& spec);
/// What makes them.
MeanSpec MeansOf(const TileLayoutSpec& spec, const TileLayout& layout, const ArrayType& type);

/// Checks that there is a position for each tile, in range.
absl::Status CheckPositions(const std::vector<Vector3>& positions, size_t tiles,
                            const std::string& field);
/// The value of voxels that nothing has, as the type can hold it: `gap`, or NaN, or 0.
/// InvalidArgument names "gap".
absl::StatusOr<double> GapOf(std::optional<double> gap, Scalar scalar);
/// Whether an array of this extent has at most 2^30 elements.
bool FitsAnArray(const int64_t (&extent)[3]);
/// A number of voxels; decimal fractions of um that mean whole voxels are whole voxels.
double SnappedVoxels(double voxels);
/// Checks an array of real numbers with one lane.
absl::Status CheckReal(const ArrayType& type, const std::string& field);

}  // namespace octavo::inline gpu
