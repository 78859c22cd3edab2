#pragma once

#include <cstdint>

#include "gpu/tomography/gridding.h"

// The inner loop of the gridding, compiled once per SIMD target.
namespace octavo::inline gpu::host {

/// Tiles of the host's grid. With what reaches over its edges a tile stays in the L1 cache.
inline constexpr int64_t kGridTile = 32;
static_assert(kGridStep % kGridTile == 0);

/// Computes the points of one tile from the samples of one pair of slices.
void GatherTile(const GriddingView& view, int64_t tile_column, int64_t tile_row,
                const ComplexF* samples, ComplexF* grid);

}  // namespace octavo::inline gpu::host
