#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
#include "gpu/mosaic/tile_layout.h"

namespace octavo::inline gpu {

/// As octavo.v1.ResampleTilesRequest.
struct ResampleTilesSpec {
  TileLayoutSpec layout;
  Vector3 target_um;
  bool corner_aligned = false, anti_aliasing = true;
  Scalar scalar{};  // 0: of the tiles
};
/// As octavo.v1.ResampleTilesResponse.
struct ResampledTiles {
  int64_t depth = 0, tile_y = 0, tile_x = 0;
  Vector3 spacing_um;
};

/// The array that PlanResample makes of one of `type`, known before anything is allocated for it.
/// InvalidArgument names the fields of ResampleTilesRequest.
absl::StatusOr<ArrayType> ResampledType(const ResampleTilesSpec& spec, const ArrayType& type);
/// The program that resamples each tile by itself. It may have tables of hundreds of MB: check
/// ResampledType before. InvalidArgument names the fields of ResampleTilesRequest. `made`: what it
/// makes of the tiles that are not cut short.
absl::StatusOr<std::unique_ptr<const SlicedProgram>> PlanResample(const ResampleTilesSpec& spec,
                                                                  const ArrayType& type,
                                                                  ResampledTiles* made);

}  // namespace octavo::inline gpu
