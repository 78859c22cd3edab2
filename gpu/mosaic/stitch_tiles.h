#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/tile_layout.h"

namespace octavo::inline gpu {

/// As octavo.v1.StitchTilesRequest.
struct StitchTilesSpec {
  TileLayoutSpec layout;
  std::vector<Vector3> position_um;
  TileBlend blend = TileBlend::kDefault;
  std::optional<double> gap;
  Scalar scalar{};  // 0: of the tiles
};

/// The program that makes one array [z, y, x] of the tiles. InvalidArgument names the fields of
/// StitchTilesRequest.
absl::StatusOr<std::unique_ptr<const SlicedProgram>> PlanStitch(const StitchTilesSpec& spec,
                                                                const ArrayType& type);
/// Position of the first voxel of the result.
Vector3 StitchOrigin(const StitchTilesSpec& spec);

}  // namespace octavo::inline gpu
