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
  /// The pair tells nothing: the given difference stays where no links say otherwise.
  bool as_given = false;
};

struct LinkedTiles {
  std::vector<double> corrections;  // of each tile; 0 for one without links
  std::vector<bool> linked;         // whether a tile has any that tells something
  std::vector<size_t> left_out;     // links that contradict the others
};

/// The corrections that fit to all links by least squares; those that are as given have next to no
/// weight. The links of some tiles that no other link connects to the rest leave those where they
/// are, in the mean. A link off by more than `most_residual` is left out, the worst one first, as
/// long as others that tell something connect its tiles.
LinkedTiles CorrectionsOf(size_t tiles, const std::vector<TileLink>& links, double most_residual);

}  // namespace octavo::tomography
