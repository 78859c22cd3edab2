#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

// The detector that the tiles of a mosaic make together (octavo.v1.ProjectionMosaic).
namespace octavo::tomography {

/// Where the first pixel of a tile lies, in any frame that all tiles share, and how large it is.
struct TilePlace {
  double first_column = 0, first_row = 0;
  int64_t columns = 1, rows = 1;
};

/// A tile on the joined detector. It is seen in exactly as many pixels as it has, those nearest to
/// its own: its pixel i along the columns is seen in pixel column + i.
struct JoinedTile {
  double first_column = 0, first_row = 0;  // the middle of its first pixel; may be below 0
  int64_t column = 0, row = 0;             // the same, rounded
  int64_t columns = 1, rows = 1;
  /// How much it counts in the pixels that see it, as a product of the two: above 0, at most 1,
  /// falling linearly to the ends of what it shares with its neighbours.
  std::vector<float> column_weights, row_weights;
};

/// The largest rectangle of whole pixels that tiles cover without a hole. Where tiles do not end at
/// one row or column, the ragged ends lie outside.
struct JoinedDetector {
  int64_t columns = 0, rows = 0;
  std::vector<JoinedTile> tiles;  // in the order of the places
};

/// InvalidArgument that names a tile of which less than half would be used, because of a place that
/// no tile covers.
absl::StatusOr<JoinedDetector> JoinTiles(const std::vector<TilePlace>& places);

/// What two tiles share, of whole pixels at rounded places; of tiles that do not meet, an extent is
/// 0 or less.
struct SharedPart {
  int64_t columns = 0, rows = 0;
  /// Whether the tiles lie side by side, rather than one above the other.
  bool side_by_side = false;
  bool any() const { return columns > 0 && rows > 0; }
};
SharedPart SharedPartOf(const TilePlace& one, const TilePlace& other);

}  // namespace octavo::tomography
