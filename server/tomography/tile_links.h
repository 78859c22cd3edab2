#pragma once

#include <cstddef>
#include <vector>

// Places of tiles along one axis that fit to what pairs of them show.
namespace octavo::tomography {

/// A pair of tiles, and by how much the difference of their places (second − first) is other than
/// the given one.
struct TileLink {
  size_t first = 0, second = 0;
  double difference = 0, weight = 1;
};

struct LinkedTiles {
  std::vector<double> corrections;  // of each tile; 0 for one without links
  std::vector<bool> linked;         // whether a tile has any
  std::vector<size_t> left_out;     // links that contradict the others
};

/// The corrections that fit to all links by least squares. The links of some tiles that no other
/// link connects to the rest leave those where they are, in the mean. A link off by more than
/// `most_residual` is left out, the worst one first, as long as others connect its tiles.
LinkedTiles CorrectionsOf(size_t tiles, const std::vector<TileLink>& links, double most_residual);

}  // namespace octavo::tomography
