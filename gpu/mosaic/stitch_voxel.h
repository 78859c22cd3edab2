#pragma once

#include <cstdint>

#include "gpu/math/array_ops.h"
#include "gpu/math/host_device.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/pair_alignment.h"

// One voxel of a stitched mosaic.
namespace octavo::inline gpu {

/// The weight of a tile along an axis of n voxels, at x from 0 to n - 1: above 0 everywhere.
OCTAVO_HOST_DEVICE inline double BlendWeight(TileBlend blend, double x, int64_t n) {
  const double whole = static_cast<double>(n);
  if (blend == TileBlend::kAverage) return 1;
  if (blend == TileBlend::kHann) {
    const double s = sin(3.14159265358979323846 * (x + 0.5) / whole);
    return s * s;
  }
  return x + 0.5 < whole - 0.5 - x ? x + 0.5 : whole - 0.5 - x;
}

/// Computes voxel `i` of the result. Sums are f64, so that the mean of equal values is that value.
template <typename T>
OCTAVO_HOST_DEVICE void StitchVoxel(const BlendSpec& s, const void* tiles, const PlacedTile* placed,
                                    const int32_t* starts, const int32_t* lists, int64_t i,
                                    void* out) {
  const int64_t x = i % s.extent[2], y = i / s.extent[2] % s.extent[1],
                z = i / (s.extent[2] * s.extent[1]);
  const double at[3] = {static_cast<double>(z), static_cast<double>(y), static_cast<double>(x)};
  const int64_t cell = y / BlendSpec::kCell * s.columns() + x / BlendSpec::kCell;
  double sum = 0, weights = 0;
  for (int32_t k = starts[cell]; k < starts[cell + 1]; ++k) {
    const PlacedTile& tile = placed[lists[k]];
    double in[3];
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      in[d] = at[d] - tile.position[d];
      inside = inside && in[d] >= 0 && in[d] <= static_cast<double>(tile.place.extent[d] - 1);
    }
    if (!inside) continue;
    const double value = TileReader<T>(s.array, tiles, tile.place).Sample(in);
    if (!(value == value)) continue;
    const double weight = BlendWeight(s.blend, in[1], tile.place.extent[1]) *
                          BlendWeight(s.blend, in[2], tile.place.extent[2]);
    sum += weight * value;
    weights += weight;
  }
  math::Store(s.out, out, i, {weights > 0 ? sum / weights : s.gap});
}

}  // namespace octavo::inline gpu
