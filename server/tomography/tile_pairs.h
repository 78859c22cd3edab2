#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"

#include "server/tomography/joined_detector.h"

// Pairs of tiles of a mosaic whose overlaps are compared.
namespace octavo::tomography {

/// A part of a tile, in its own pixels.
struct TilePart {
  int64_t column = 0, row = 0, columns = 0, rows = 0;
};

/// Two tiles that overlap by their places, to whole pixels.
struct TilePair {
  size_t first = 0, second = 0;
  int64_t column = 0, row = 0;    // of the second one, in pixels of the first
  int64_t columns = 0, rows = 0;  // that they share

  /// The middle of what they share, of a bounded size, as the first tile sees it.
  TilePart Middle() const;
  /// The same as the second tile sees it.
  TilePart OfSecond(const TilePart& of_first) const;
};

/// All pairs that share `least_shared` columns and rows, or all that a tile has, but for those that
/// share little beside the other overlaps of both tiles: the corners of a grid.
std::vector<TilePair> PairsOf(const std::vector<TilePlace>& places, int64_t least_shared);

/// f(index) for `count` pairs, several at a time, until one fails.
absl::Status ForPairs(size_t count, const std::function<absl::Status(size_t)>& f);

}  // namespace octavo::tomography
