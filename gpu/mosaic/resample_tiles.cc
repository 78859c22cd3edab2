#include "gpu/mosaic/resample_tiles.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/array/tiled_resize.h"
#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

/// n samples at another distance; 0 = too many.
int64_t SamplesOf(int64_t n, double scale) {
  const double samples = std::nearbyint(static_cast<double>(n) * scale);  // half to even
  return samples < 1048577 ? std::max<int64_t>(1, static_cast<int64_t>(samples)) : 0;
}

/// Tiles of `size` samples along an axis of `n`, the last of which may be cut short.
std::vector<TileLength> TilesAlong(int64_t n, int64_t size, double scale) {
  std::vector<TileLength> out;
  for (int64_t at = 0; at < n; at += size) {
    const int64_t from = std::min(size, n - at);
    out.push_back({.from = from, .to = SamplesOf(from, scale)});
  }
  return out;
}

/// The tiles along each axis of the array, and the type of the result's elements.
struct Cut {
  std::vector<std::vector<TileLength>> tiles;
  Scalar scalar{};
};

absl::StatusOr<Cut> CutOf(const ResampleTilesSpec& spec, const ArrayType& type,
                          ResampledTiles* made) {
  OCTAVO_ASSIGN_OR_RETURN(const TileLayout layout, LayOutTiles(spec.layout, type, "tiles"));
  const Scalar scalar = spec.scalar == Scalar{} ? type.scalar : spec.scalar;
  if (IsComplex(scalar)) return FieldNotAllowed("type", NameOf(scalar), "a real type");
  constexpr const char* kAxes[] = {"target_um.z", "target_um.y", "target_um.x"};
  const bool stack = spec.layout.kind == TileLayoutSpec::Kind::kStack;
  // A tile's extent along each axis; the array may have no z.
  const int64_t size[3] = {layout.tiles[0].extent[0],
                           stack ? layout.tiles[0].extent[1] : spec.layout.tile_y,
                           stack ? layout.tiles[0].extent[2] : spec.layout.tile_x};
  int64_t to[3];
  Cut cut{.tiles = {}, .scalar = scalar};
  bool any = false;
  for (int d = 0; d < 3; ++d) {
    const double source = spec.layout.spacing_um[d], target = spec.target_um[d];
    if (target != 0) OCTAVO_RETURN_IF_ERROR(InRange(kAxes[d], target, 1e-6, 1e9));
    any = any || target != 0;
    const int64_t axis = d - 3 + type.rank();
    const double scale = target == 0 || axis < 0 ? 1 : source / target;
    to[d] = SamplesOf(size[d], scale);
    if (to[d] == 0) {
      return FieldNotAllowed(
          kAxes[d], target,
          absl::StrCat("at least ", source * static_cast<double>(size[d]) / 0x1p20,
                       ": a tile may have 2^20 voxels"));
    }
    const bool corners = spec.corner_aligned && size[d] > 1 && to[d] > 1;
    made->spacing_um[d] = source * static_cast<double>(size[d] - (corners ? 1 : 0)) /
                          static_cast<double>(to[d] - (corners ? 1 : 0));
    if (axis >= 0)
      cut.tiles.push_back(TilesAlong(type.dims[static_cast<size_t>(axis)], size[d], scale));
  }
  if (!any) return FieldNotAllowed("target_um", "0 along all axes", "above 0 along one of them");
  made->depth = to[0];
  made->tile_y = to[1];
  made->tile_x = to[2];
  return cut;
}

}  // namespace

absl::StatusOr<ArrayType> ResampledType(const ResampleTilesSpec& spec, const ArrayType& type) {
  ResampledTiles ignored;
  OCTAVO_ASSIGN_OR_RETURN(const Cut cut, CutOf(spec, type, &ignored));
  ArrayType out = type;
  out.scalar = cut.scalar;
  for (size_t d = 0; d < cut.tiles.size(); ++d) {
    out.dims[d] = 0;
    for (const TileLength& tile : cut.tiles[d]) out.dims[d] += tile.to;
  }
  return out;
}

absl::StatusOr<std::unique_ptr<const SlicedProgram>> PlanResample(const ResampleTilesSpec& spec,
                                                                  const ArrayType& type,
                                                                  ResampledTiles* made) {
  OCTAVO_ASSIGN_OR_RETURN(const Cut cut, CutOf(spec, type, made));
  OCTAVO_ASSIGN_OR_RETURN(ArrayChain chain, PlanTiledResize(type, cut.tiles,
                                                            {.sampling = math::Sampling::kLinear,
                                                             .corner_aligned = spec.corner_aligned,
                                                             .anti_aliasing = spec.anti_aliasing},
                                                            cut.scalar, "target_um"));
  return SlicedOf(std::move(chain));
}

}  // namespace octavo::inline gpu
