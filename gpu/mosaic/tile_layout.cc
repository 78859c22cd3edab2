#include "gpu/mosaic/tile_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

absl::Status Wrong(Reason reason, const std::string& field, const std::string& what) {
  return WithInfo(absl::InvalidArgumentError(absl::StrCat(field, ": ", what)),
                  {.reason = reason, .field = field, .numbers = {}});
}

}  // namespace

absl::Status CheckReal(const ArrayType& type, const std::string& field) {
  if (!IsComplex(type.scalar) && type.lanes == 1) return absl::OkStatus();
  return Wrong(Reason::kBadType, field,
               absl::StrCat("is ", type.Text(), "; allowed real numbers with one lane"));
}

absl::StatusOr<TileLayout> LayOutTiles(const TileLayoutSpec& spec, const ArrayType& type,
                                       const std::string& field) {
  OCTAVO_RETURN_IF_ERROR(CheckReal(type, field + ".name"));
  for (int d = 0; d < 3; ++d) {
    constexpr const char* kAxes[] = {"z", "y", "x"};
    OCTAVO_RETURN_IF_ERROR(
        InRange(absl::StrCat(field, ".spacing_um.", kAxes[d]), spec.spacing_um[d], 1e-6, 1e9));
  }
  TileLayout out;
  out.array.scalar = type.scalar;
  const std::vector<int64_t>& dims = type.dims;
  if (spec.kind == TileLayoutSpec::Kind::kStack) {
    if (dims.size() != 3) {
      return Wrong(Reason::kBadShape, field + ".name",
                   absl::StrCat("is ", type.Text(), "; allowed for a stack [tiles x depth, y, x]"));
    }
    if (spec.depth < 1 || dims[0] % spec.depth != 0) {
      return FieldNotAllowed(field + ".stack.depth", spec.depth,
                             absl::StrCat("a divisor of ", dims[0], ", the array's first axis"));
    }
    out.array.stride[0] = dims[1] * dims[2];
    out.array.stride[1] = dims[2];
    const int64_t count = dims[0] / spec.depth;
    OCTAVO_RETURN_IF_ERROR(InRange(field, std::min(count, kMostTiles + 1), 1, kMostTiles));
    for (int64_t i = 0; i < count; ++i) {
      out.tiles.push_back({.offset = i * spec.depth * out.array.stride[0],
                           .extent = {spec.depth, dims[1], dims[2]}});
    }
    return out;
  }
  if (spec.kind != TileLayoutSpec::Kind::kGrid)
    return FieldNotAllowed(field + ".layout", "not given", "stack or grid");
  if (dims.size() < 2) {
    return Wrong(Reason::kBadShape, field + ".name",
                 absl::StrCat("is ", type.Text(), "; allowed for a grid [z, y, x] or [y, x]"));
  }
  const int64_t height = dims[dims.size() - 2], width = dims.back(),
                depth = dims.size() == 3 ? dims[0] : 1;
  OCTAVO_RETURN_IF_ERROR(InRange(field + ".grid.tile_y", spec.tile_y, 1, height));
  OCTAVO_RETURN_IF_ERROR(InRange(field + ".grid.tile_x", spec.tile_x, 1, width));
  const int64_t rows = (height + spec.tile_y - 1) / spec.tile_y,
                columns = (width + spec.tile_x - 1) / spec.tile_x;
  if (rows > kMostTiles || columns > kMostTiles || rows * columns > kMostTiles) {
    return FieldNotAllowed(field + ".grid", absl::StrCat(rows, " x ", columns, " tiles"),
                           absl::StrCat(kMostTiles));
  }
  out.array.stride[0] = height * width;
  out.array.stride[1] = width;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out.tiles.push_back({.offset = r * spec.tile_y * width + c * spec.tile_x,
                           .extent = {depth, std::min(spec.tile_y, height - r * spec.tile_y),
                                      std::min(spec.tile_x, width - c * spec.tile_x)}});
    }
  }
  return out;
}

TileLayout FlatLayout(const TileLayout& layout, const TileLayoutSpec& spec) {
  TileLayout out = layout;
  out.array.scalar = Scalar::kF32;
  const bool stack = spec.kind == TileLayoutSpec::Kind::kStack;
  for (TilePlace& tile : out.tiles) {
    if (stack) tile.offset /= spec.depth;
    tile.extent[0] = 1;
  }
  return out;
}

MeanSpec MeansOf(const TileLayoutSpec& spec, const TileLayout& layout, const ArrayType& type) {
  const bool stack = spec.kind == TileLayoutSpec::Kind::kStack;
  const int64_t depth = layout.tiles[0].extent[0], plane = layout.array.stride[0];
  return {.scalar = type.scalar,
          .outer_stride = depth * plane,
          .depth_stride = plane,
          .row_stride = layout.array.stride[1],
          .outer = stack ? static_cast<int64_t>(layout.tiles.size()) : 1,
          .depth = depth,
          .rows = plane / layout.array.stride[1],
          .columns = layout.array.stride[1]};
}

absl::Status CheckPositions(const std::vector<Vector3>& positions, size_t tiles,
                            const std::string& field) {
  if (positions.size() != tiles) {
    return FieldNotAllowed(field, absl::StrCat(positions.size(), " positions"),
                           absl::StrCat(tiles, ", one for each tile"));
  }
  constexpr const char* kAxes[] = {"z", "y", "x"};
  for (size_t i = 0; i < tiles; ++i) {
    for (int d = 0; d < 3; ++d) {
      OCTAVO_RETURN_IF_ERROR(
          InRange(absl::StrCat(field, "[", i, "].", kAxes[d]), positions[i][d], -1e9, 1e9));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> GapOf(std::optional<double> gap, Scalar scalar) {
  if (!gap.has_value()) return IsIntegral(scalar) ? 0 : std::numeric_limits<double>::quiet_NaN();
  if (!IsIntegral(scalar)) return *gap;
  const auto stored = [scalar](double value) {
    double cell[2] = {0, 0};  // room for any type
    math::Store(scalar, cell, 0, {value, 0});
    return math::Load(scalar, cell, 0).re;
  };
  OCTAVO_RETURN_IF_ERROR(InRange("gap", *gap, stored(-1e300), stored(1e300)));
  return *gap;
}

bool FitsAnArray(const int64_t (&extent)[3]) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return extent[1] <= kMost / extent[2] && extent[0] <= kMost / (extent[1] * extent[2]);
}

double SnappedVoxels(double voxels) {
  const double whole = std::round(voxels);
  return std::abs(voxels - whole) < 1e-6 ? whole : voxels;
}

}  // namespace octavo::inline gpu
