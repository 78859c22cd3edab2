// What tiles have in common, and its removal: flat fields, focal curvature.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/array/chain_builder.h"
#include "gpu/array/flat_field.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

absl::Status CheckMethod(FlatMethod method, double smoothness, const ChainBuilder& chain) {
  if (method > FlatMethod::kBasic) {
    return chain.Bad("algorithm", absl::StrCat("has the unknown value ", static_cast<int>(method),
                                               "; allowed QUADRATIC, BASIC"));
  }
  if (smoothness == 0) return absl::OkStatus();
  if (method != FlatMethod::kBasic) return chain.Bad("smoothness", "is given; only BASIC takes it");
  if (smoothness >= 0.001 && smoothness <= 1000) return absl::OkStatus();
  return chain.Bad("smoothness",
                   absl::StrCat("is ", smoothness, "; allowed 0 (1), and 0.001 to 1000"));
}

absl::Status SeeFromMedian(FromMedian how, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  return chain->Add(FromMedianSpec{.in = type.scalar,
                                   .tiles = type.dims[0],
                                   .pixels = type.dims[1] * type.dims[2],
                                   .how = how},
                    {.scalar = Scalar::kF32, .dims = type.dims});
}

absl::Status Level(bool fit, bool mean_one, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  return chain->Add(
      LevelFlatSpec{
          .rows = type.dims[0], .columns = type.dims[1], .fit = fit, .mean_one = mean_one},
      {.scalar = Scalar::kF32, .dims = type.dims});
}

// From tiles [tile, y, x] to what they have in common: a flat of mean 1 or, of depths, a curvature
// of mean 0.
absl::Status PlanFlat(FlatMethod method, double smoothness, bool depths, ChainBuilder* chain) {
  const int64_t tiles = chain->type().dims[0], rows = chain->type().dims[1],
                columns = chain->type().dims[2];
  if (method != FlatMethod::kBasic) {
    OCTAVO_RETURN_IF_ERROR(
        SeeFromMedian(depths ? FromMedian::kDifference : FromMedian::kRatio, chain));
    OCTAVO_RETURN_IF_ERROR(PlanOp(PercentileOp{.percentiles = {50}, .axes = {0}}, chain));
    return Level(/*fit=*/true, /*mean_one=*/!depths, chain);
  }
  if (tiles > kMostBasicTiles) {
    return chain->Bad("algorithm", absl::StrCat("is BASIC, of ", tiles, " tiles; allowed at most ",
                                                kMostBasicTiles, " (QUADRATIC takes any number)"));
  }
  OCTAVO_RETURN_IF_ERROR(SeeFromMedian(FromMedian::kFill, chain));
  const auto resize = [&](std::vector<int64_t> shape) {
    if (shape == chain->type().dims) return absl::OkStatus();
    return PlanOp(ResizeOp{.shape = std::move(shape), .corner_aligned = true}, chain);
  };
  OCTAVO_RETURN_IF_ERROR(resize({tiles, kBasicSize, kBasicSize}));
  OCTAVO_RETURN_IF_ERROR(
      chain->Add(BasicSpec{.tiles = tiles, .smoothness = smoothness == 0 ? 1 : smoothness},
                 {.scalar = Scalar::kF32, .dims = {kBasicSize, kBasicSize}}));
  OCTAVO_RETURN_IF_ERROR(resize({rows, columns}));
  // The model's flat has the tiles' mean: less its mean, it is (flat - 1) x mean.
  return Level(/*fit=*/false, /*mean_one=*/!depths, chain);
}

}  // namespace

absl::Status PlanOp(const FlatFieldOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  if (type.lanes != 1 || type.rank() != 3) {
    return chain->BadOp(
        absl::StrCat("is of ", type.Text(), "; allowed three axes, [tile, y, x], and one lane"));
  }
  OCTAVO_RETURN_IF_ERROR(CheckMethod(op.method, op.smoothness, *chain));
  return PlanFlat(op.method, op.smoothness, /*depths=*/false, chain);
}

absl::Status PlanOp(const FlattenOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  const ArrayType& flat = chain->others()[op.flat];
  if (flat.rank() != 2 || flat.lanes != 1 || IsComplex(flat.scalar)) {
    return chain->Bad("flat", absl::StrCat("is ", flat.Text(),
                                           "; allowed two axes of real numbers with one lane"));
  }
  if (type.rank() < 2)
    return chain->BadOp(absl::StrCat("is of ", type.Text(), "; allowed 2 or 3 axes"));
  std::vector<int64_t> axes = op.axes;
  if (axes.empty()) axes = {-2, -1};
  if (axes.size() != 2)
    return chain->Bad("axes", absl::StrCat("has ", axes.size(), " numbers; allowed 2, or none"));
  FlattenSpec spec{
      .in = type.scalar, .flat = flat.scalar, .other_index = op.flat, .count = type.numbers()};
  int found[2];
  for (size_t k = 0; k < 2; ++k) {
    OCTAVO_ASSIGN_OR_RETURN(found[k], chain->Axis("axes", axes[k]));
    const auto axis = static_cast<size_t>(found[k]);
    spec.extent[k] = type.dims[axis];
    spec.stride[k] = type.lanes;
    for (size_t d = axis + 1; d < type.dims.size(); ++d) spec.stride[k] *= type.dims[d];
    spec.tile[k] = flat.dims[k];
  }
  if (found[0] == found[1])
    return chain->Bad("axes", absl::StrCat("names axis ", found[0], " twice"));
  for (size_t k = 0; k < 2; ++k) {
    if (flat.dims[k] <= spec.extent[k]) continue;
    return chain->Bad("flat", absl::StrCat("is ", flat.dims[0], " x ", flat.dims[1],
                                           "; allowed at most the array's ", spec.extent[0], " x ",
                                           spec.extent[1]));
  }
  return chain->Add(spec, type);
}

absl::Status PlanOp(const FocalCurvatureOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  if (type.lanes != 1 || type.rank() != 2) {
    return chain->BadOp(
        absl::StrCat("is of ", type.Text(), "; allowed a surface: two axes, [y, x], and one lane"));
  }
  if (op.tile.size() != 2)
    return chain->Bad("tile", absl::StrCat("has ", op.tile.size(), " numbers; allowed 2, y and x"));
  for (size_t k = 0; k < 2; ++k) {
    if (op.tile[k] < 1 || op.tile[k] > type.dims[k]) {
      return chain->Bad("tile", absl::StrCat("[", k, "] is ", op.tile[k], "; allowed 1 to ",
                                             type.dims[k], " for ", type.Text()));
    }
  }
  OCTAVO_RETURN_IF_ERROR(CheckMethod(op.method, op.smoothness, *chain));
  const CutTilesSpec cut{.in = type.scalar,
                         .map_rows = type.dims[0],
                         .map_columns = type.dims[1],
                         .rows = op.tile[0],
                         .columns = op.tile[1]};
  OCTAVO_RETURN_IF_ERROR(
      chain->Add(cut, {.scalar = Scalar::kF32, .dims = {cut.tiles(), cut.rows, cut.columns}}));
  OCTAVO_RETURN_IF_ERROR(PlanFlat(op.method, op.smoothness, /*depths=*/true, chain));
  return chain->Add(SpreadSpec{.map_rows = cut.map_rows,
                               .map_columns = cut.map_columns,
                               .rows = cut.rows,
                               .columns = cut.columns},
                    {.scalar = Scalar::kF32, .dims = type.dims});
}

}  // namespace octavo::inline gpu
