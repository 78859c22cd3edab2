// The surface of a sample.

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/array/surface.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr double kMostSigma = 64;
constexpr int64_t kMostThickness = 65536, kMostTiles = 65536, kMostLateralSize = 1024;

// The current array with its depth axis first, and the strides of a mask of its shape before.
struct Depth {
  DepthShape shape;
  DepthMask mask;
  std::vector<int64_t> lateral;  // the other dims
};

absl::StatusOr<Depth> PutDepthFirst(size_t axis, ArrayRef mask, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  Depth depth{.mask = {.array = mask}};
  std::vector<int64_t> strides(type.dims.size(), 1);
  for (size_t d = strides.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * type.dims[d];
  // Depth, rows, columns; an array of two axes has one row.
  std::vector<int64_t> order = {static_cast<int64_t>(axis)};
  for (size_t d = 0; d < type.dims.size(); ++d) {
    if (d == axis) continue;
    depth.lateral.push_back(type.dims[d]);
    order.push_back(static_cast<int64_t>(d));
  }
  depth.shape.n = type.dims[axis];
  depth.shape.rows = depth.lateral.size() == 2 ? depth.lateral[0] : 1;
  depth.shape.columns = depth.lateral.back();
  depth.mask.stride[0] = strides[axis];
  depth.mask.stride[1] = order.size() == 3 ? strides[static_cast<size_t>(order[1])] : 0;
  depth.mask.stride[2] = strides[static_cast<size_t>(order.back())];
  if (axis != 0) OCTAVO_RETURN_IF_ERROR(PlanOp(TransposeOp{.axes = order}, chain));
  return depth;
}

// An error for a field that belongs to the other method.
absl::Status BelongsTo(const char* method, const char* field, const ChainBuilder& chain) {
  return chain.Bad(field, absl::StrCat("is given; only ", method, " takes it"));
}

absl::StatusOr<double> SigmaOf(const char* field, std::optional<double> given, double unset,
                               const ChainBuilder& chain) {
  const double sigma = given.value_or(unset);
  if (sigma >= 0 && sigma <= kMostSigma) return sigma;
  return chain.Bad(field, absl::StrCat("is ", sigma, "; allowed 0 to ", kMostSigma));
}

int64_t RadiusOf(double sigma) { return static_cast<int64_t>(4 * sigma + 0.5); }

absl::Status Smooth(double sigma, int64_t outer, int64_t n, int64_t inner, ChainBuilder* chain) {
  const int64_t radius = RadiusOf(sigma);
  if (radius == 0) return absl::OkStatus();
  const std::vector<double> exact = GaussianKernel(sigma, 0, radius).weight;
  return chain->Add(SmoothSamplesSpec{.outer = outer,
                                      .n = n,
                                      .inner = inner,
                                      .radius = static_cast<int>(radius),
                                      .weight_offset = chain->AddTable(
                                          std::vector<float>(exact.begin(), exact.end()))},
                    chain->type());
}

absl::Status PlanOtsu(const SurfaceOp& op, size_t axis, ChainBuilder* chain) {
  if (op.lateral_size) return BelongsTo("GRADIENT", "lateral_size", *chain);
  if (op.order) return BelongsTo("GRADIENT", "order", *chain);
  if (op.logarithm) return BelongsTo("GRADIENT", "logarithm", *chain);
  if (op.detect_cutting_errors) return BelongsTo("GRADIENT", "detect_cutting_errors", *chain);
  OCTAVO_ASSIGN_OR_RETURN(const double sigma, SigmaOf("sigma", op.sigma, 1.5, *chain));
  OCTAVO_ASSIGN_OR_RETURN(const double lateral_sigma,
                          SigmaOf("lateral_sigma", op.lateral_sigma, 4, *chain));
  const double step = op.step == 0 ? 1 : op.step,
               thickness = std::round(op.thickness == 0 ? 16 : op.thickness / step);
  if (!(thickness >= 1 && thickness <= static_cast<double>(kMostThickness))) {
    return chain->Bad(op.step == 0 ? "thickness" : "thickness_um",
                      absl::StrCat("is ", op.thickness, "; allowed ", step, " to ",
                                   static_cast<double>(kMostThickness) * step));
  }
  if (const int64_t depth = chain->type().dims[axis];
      op.thickness != 0 && thickness > static_cast<double>(depth)) {
    return chain->Bad(op.step == 0 ? "thickness" : "thickness_um",
                      absl::StrCat("is ", op.thickness, "; allowed ", step, " to ",
                                   static_cast<double>(depth) * step, ", the depth of the array"));
  }
  const size_t laterals = chain->type().dims.size() - 1;
  if (!op.tile.empty() && op.tile.size() != laterals) {
    return chain->Bad("tile", absl::StrCat("has ", op.tile.size(), " numbers; allowed ", laterals,
                                           ", one for each lateral axis, or none"));
  }
  for (const int64_t extent : op.tile) {
    if (extent < 0) return chain->Bad("tile", absl::StrCat("has ", extent, "; allowed 0 or more"));
  }
  const Scalar scalar = chain->type().scalar;
  OCTAVO_ASSIGN_OR_RETURN(const Depth depth, PutDepthFirst(axis, op.mask, chain));
  const DepthShape& shape = depth.shape;
  const auto tile = [&](size_t d, int64_t extent) {
    const int64_t given = op.tile.empty() ? 0 : op.tile[d];
    return given == 0 || given > extent ? extent : given;
  };
  SurfaceSpec spec{.shape = shape,
                   .thickness = static_cast<int64_t>(thickness),
                   .tile_rows = laterals == 2 ? tile(0, shape.rows) : 1,
                   .tile_columns = tile(laterals - 1, shape.columns)};
  if (spec.tiles() > kMostTiles) {
    return chain->Bad("tile", absl::StrCat("makes ", spec.tiles(), " tiles; allowed ", kMostTiles));
  }
  ArrayType pairs = chain->type();
  pairs.scalar = Scalar::kF32;
  pairs.lanes = 2;
  OCTAVO_RETURN_IF_ERROR(chain->Add(
      SampleWeightsSpec{
          .in = scalar, .shape = shape, .mask = depth.mask, .zero_is_data = op.zero_is_data},
      pairs));
  OCTAVO_RETURN_IF_ERROR(Smooth(sigma, 1, shape.n, shape.lines(), chain));
  if (laterals == 2)
    OCTAVO_RETURN_IF_ERROR(Smooth(lateral_sigma, shape.n, shape.rows, shape.columns, chain));
  OCTAVO_RETURN_IF_ERROR(Smooth(lateral_sigma, shape.n * shape.rows, shape.columns, 1, chain));
  return chain->Add(spec, {.scalar = Scalar::kF32, .dims = depth.lateral});
}

absl::Status PlanGradient(const SurfaceOp& op, size_t axis, ChainBuilder* chain) {
  if (op.lateral_sigma) return BelongsTo("OTSU", "lateral_sigma", *chain);
  if (op.thickness != 0)
    return BelongsTo("OTSU", op.step == 0 ? "thickness" : "thickness_um", *chain);
  if (!op.tile.empty()) return BelongsTo("OTSU", "tile", *chain);
  if (op.zero_is_data) return BelongsTo("OTSU", "zero_is_data", *chain);
  OCTAVO_ASSIGN_OR_RETURN(const double sigma, SigmaOf("sigma", op.sigma, 2, *chain));
  const int64_t order = op.order.value_or(1), size = op.lateral_size.value_or(15);
  if (order < 0 || order > 2)
    return chain->Bad("order", absl::StrCat("is ", order, "; allowed 0 to 2"));
  if (order > 0 && sigma == 0)
    return chain->Bad("sigma", absl::StrCat("is 0 with order ", order, "; allowed above 0"));
  if (size < 0 || size > kMostLateralSize) {
    return chain->Bad("lateral_size",
                      absl::StrCat("is ", size, "; allowed 0 to ", kMostLateralSize));
  }
  OCTAVO_ASSIGN_OR_RETURN(const Depth depth, PutDepthFirst(axis, op.mask, chain));
  if (chain->type().scalar != Scalar::kF32) OCTAVO_RETURN_IF_ERROR(chain->Map({}, Scalar::kF32));
  if (op.logarithm.value_or(true)) {
    OCTAVO_RETURN_IF_ERROR(
        PlanOp(FunctionOp{.function = math::Function::kLn, .keep_rest = true}, chain));
  }
  if (size > 1) {
    std::vector<double> sizes(chain->type().dims.size(), static_cast<double>(size));
    sizes[0] = 0;
    OCTAVO_RETURN_IF_ERROR(PlanOp(UniformOp{.size = sizes}, chain));
  }
  if (op.mask.given()) {
    OCTAVO_RETURN_IF_ERROR(
        chain->Add(CompactSpec{.shape = depth.shape, .mask = depth.mask}, chain->type()));
  }
  SteepestSpec spec{
      .shape = depth.shape, .mask = depth.mask, .radius = RadiusOf(sigma), .sigma = sigma};
  const auto kernel = [&](int64_t o) {
    return sigma == 0 ? std::vector<double>{1} : GaussianKernel(sigma, o, spec.radius).weight;
  };
  spec.rise_offset = chain->AddTable(kernel(order));
  if (op.detect_cutting_errors) spec.smooth_offset = chain->AddTable(kernel(0));
  return chain->Add(spec, {.scalar = Scalar::kF32, .dims = depth.lateral});
}

}  // namespace

absl::Status PlanOp(const SurfaceOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  if (type.lanes != 1 || type.rank() < 2)
    return chain->BadOp(absl::StrCat("is of ", type.Text(), "; allowed 2 or 3 axes, one lane"));
  OCTAVO_ASSIGN_OR_RETURN(const int axis, chain->Axis("axis", op.axis));
  OCTAVO_RETURN_IF_ERROR(CheckMask(op.mask, *chain));
  if (op.method > SurfaceMethod::kGradient) {
    return chain->Bad("algorithm",
                      absl::StrCat("has the unknown value ", static_cast<int>(op.method),
                                   "; allowed OTSU, GRADIENT"));
  }
  const auto at = static_cast<size_t>(axis);
  OCTAVO_RETURN_IF_ERROR(op.method == SurfaceMethod::kGradient ? PlanGradient(op, at, chain)
                                                               : PlanOtsu(op, at, chain));
  if (!op.keep_dims) return absl::OkStatus();
  ArrayType kept = chain->type();
  kept.dims.insert(kept.dims.begin() + axis, 1);
  chain->Reshape(std::move(kept));
  return absl::OkStatus();
}

}  // namespace octavo::inline gpu
