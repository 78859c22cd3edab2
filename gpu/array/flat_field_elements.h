#pragma once

// Private to this folder: what the twins of flat fields share.

#include <cmath>
#include <cstdint>

#include "gpu/array/flat_field.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/flat_field.h"

namespace octavo::inline gpu {

static_assert(kBasicSize == math::kBasicSize);
static_assert(math::kQuadraticSums * 8 <= kLevelFlatWorkBytes);

/// Element i of the result.
OCTAVO_HOST_DEVICE inline float TileElement(const CutTilesSpec& s, const void* in, int64_t i) {
  const int64_t tile = i / (s.rows * s.columns);
  const int64_t y = tile / s.across() * s.rows + i / s.columns % s.rows,
                x = tile % s.across() * s.columns + i % s.columns;
  if (y >= s.map_rows || x >= s.map_columns) return NAN;
  return static_cast<float>(math::Load(s.in, in, y * s.map_columns + x).re);
}
OCTAVO_HOST_DEVICE inline float SeenFromMedian(FromMedian how, double v, double median) {
  switch (how) {
    case FromMedian::kRatio: return static_cast<float>(median > 0 ? v / median : NAN);
    case FromMedian::kDifference: return static_cast<float>(v - median);
    default: break;
  }
  if (v - v == 0) return static_cast<float>(v);
  return median - median == 0 ? static_cast<float>(median) : 0;
}
OCTAVO_HOST_DEVICE inline void FlattenElement(const FlattenSpec& s, const void* in,
                                              const void* flat, int64_t i, void* out) {
  const int64_t y = i / s.stride[0] % s.extent[0] % s.tile[0],
                x = i / s.stride[1] % s.extent[1] % s.tile[1];
  math::Store(s.in, out, i,
              math::Divide(math::Load(s.in, in, i), math::Load(s.flat, flat, y * s.tile[1] + x)));
}
OCTAVO_HOST_DEVICE inline float SpreadElement(const SpreadSpec& s, const float* in, int64_t i) {
  return -in[i / s.map_columns % s.rows * s.columns + i % s.map_columns % s.columns];
}

}  // namespace octavo::inline gpu
