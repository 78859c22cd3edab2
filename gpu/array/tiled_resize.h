#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/array_ops.h"

// The resampling of an array of tiles that lie side by side, each by itself.
namespace octavo::inline gpu {

/// A tile along one axis: its samples, and how many it gets.
struct TileLength {
  int64_t from = 1, to = 1;
};

/// The chain that resizes each tile of `in` as ResizeOp `how` would, whose shape does not matter:
/// beyond a tile's ends its own samples continue it. `tiles`: of each axis, one after the other,
/// which have all samples of the axis. The result is of type `scalar`, a real one; integers are
/// rounded and clipped. InvalidArgument names `field` if the tables would be too large.
absl::StatusOr<ArrayChain> PlanTiledResize(const ArrayType& in,
                                           const std::vector<std::vector<TileLength>>& tiles,
                                           const ResizeOp& how, Scalar scalar,
                                           const std::string& field);

}  // namespace octavo::inline gpu
