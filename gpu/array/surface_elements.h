#pragma once

// Private to this folder: what the twins of surfaces share.

#include <cstdint>

#include "gpu/array/surface.h"
#include "gpu/math/surface.h"

namespace octavo::inline gpu {

/// Whether the mask, if there is one, has sample z of a column.
OCTAVO_HOST_DEVICE inline bool Counts(const DepthMask& s, const DepthShape& shape,
                                      const uint8_t* mask, int64_t z, int64_t line) {
  return mask == nullptr || mask[z * s.stride[0] + line / shape.columns * s.stride[1] +
                                 line % shape.columns * s.stride[2]] != 0;
}

/// What a tile's threshold is made of, in workspace.
struct SurfaceTile {
  unsigned long long least = ~0ull, most = 0;  // keys (math::KeyOf) of its samples
  unsigned long long counts[math::kSurfaceBins] = {};
  math::SurfaceLevels levels;
};
static_assert(sizeof(SurfaceTile) == kSurfaceTileBytes);

}  // namespace octavo::inline gpu
