// Operations that sample an array at any positions: affine, map_coordinates, displace, shift.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/array/warp_elements.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kMostExtent = int64_t{1} << 31;

int64_t PartsOf(const ArrayType& type) { return type.lanes * (IsComplex(type.scalar) ? 2 : 1); }

/// The rules with their defaults filled in.
absl::StatusOr<SamplingRules> Resolved(SamplingRules rules, const ChainBuilder& chain) {
  if (rules.sampling == math::Sampling::kDefault) rules.sampling = math::Sampling::kLinear;
  if (rules.edge == math::SampleEdge::kDefault) rules.edge = math::SampleEdge::kConstant;
  if (rules.constant.im != 0 && !IsComplex(chain.type().scalar)) {
    return chain.Bad("constant.im",
                     absl::StrCat("is ", rules.constant.im, "; allowed 0: the array is ",
                                  NameOf(chain.type().scalar)));
  }
  return rules;
}

/// Coefficients in front of each axis and behind it. Only with kNearest they are no mirror image
/// of those within. Positions reach so far, and the four B-splines around one two samples further.
int64_t PaddingOf(const SamplingRules& rules) {
  return rules.prefilter && rules.edge == math::SampleEdge::kNearest ? math::kNearestReach + 2 : 0;
}

/// Makes coefficients of the current array along `axes`, if the rules ask for a cubic spline, and
/// returns the padding of each axis.
absl::StatusOr<std::vector<int64_t>> AddCoefficients(const SamplingRules& rules,
                                                     const std::vector<size_t>& axes,
                                                     ChainBuilder* chain) {
  std::vector<int64_t> padding(chain->type().dims.size(), 0);
  if (rules.sampling != math::Sampling::kCubic) return padding;
  for (const size_t axis : axes) {
    if (!rules.prefilter || chain->type().dims[axis] == 1) continue;
    padding[axis] = PaddingOf(rules);
    OCTAVO_RETURN_IF_ERROR(AddSpline(rules.edge, axis, padding[axis], chain));
  }
  // The step that samples reads coefficients of these two types only.
  if (const Scalar wanted = BetweenOf(chain->type().scalar); wanted != chain->type().scalar)
    OCTAVO_RETURN_IF_ERROR(chain->Map({}, wanted));
  return padding;
}

std::vector<size_t> AllAxes(const ArrayType& type) {
  std::vector<size_t> axes(type.dims.size());
  for (size_t d = 0; d < axes.size(); ++d) axes[d] = d;
  return axes;
}

absl::StatusOr<const ArrayType*> Second(size_t other, const char* field, const char* what,
                                        const ChainBuilder& chain) {
  if (other >= chain.others().size())
    return chain.Bad(field, absl::StrCat("is empty; name the buffer of ", what));
  const ArrayType& type = chain.others()[other];
  if (IsComplex(type.scalar)) {
    return chain.Bad(
        field, absl::StrCat("is ", type.Text(), "; allowed are real numbers, as ", what, " are"));
  }
  return &type;
}

/// Adds the step that samples the current array, `type` before coefficients were made of it. `spec`
/// has its positions.
absl::Status AddWarp(const SamplingRules& rules, std::vector<int64_t> shape, WarpSpec spec,
                     ChainBuilder* chain) {
  const ArrayType type = chain->type();
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int64_t> padding,
                          AddCoefficients(rules, AllAxes(type), chain));
  spec.in = RealOf(chain->type().scalar);
  spec.out = RealOf(type.scalar);
  spec.sampling = rules.sampling;
  spec.edge = rules.edge;
  spec.complex = IsComplex(type.scalar);
  spec.rank = static_cast<int8_t>(type.rank());
  spec.parts = PartsOf(type);
  spec.constant = rules.constant;
  const size_t first = 3 - type.dims.size();
  for (size_t d = 0; d < type.dims.size(); ++d) {
    spec.in_extent[first + d] = type.dims[d];
    spec.padding[first + d] = static_cast<int8_t>(padding[d]);
  }
  std::copy(shape.begin(), shape.end(), spec.out_extent + 3 - shape.size());
  ArrayType out = type;
  out.dims = std::move(shape);
  return chain->Add(spec, std::move(out));
}

/// A result's shape that the requester gave; 0 stands for the extent of `present`.
absl::StatusOr<std::vector<int64_t>> ShapeOf(const std::vector<int64_t>& given,
                                             const std::vector<int64_t>& present,
                                             const ChainBuilder& chain) {
  std::vector<int64_t> shape = given;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0 || shape[d] > kMostExtent)
      return chain.Bad("shape", absl::StrCat("[", d, "] is ", shape[d], "; allowed ",
                                             present.empty() ? "1" : "0 (as it is)", " to 2^31"));
    if (shape[d] != 0) continue;
    if (present.empty())
      return chain.Bad("shape", absl::StrCat("[", d, "] is 0; allowed 1 to 2^31"));
    shape[d] = present[d];
  }
  return shape;
}

int64_t Product(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t d : dims)
    product = d > (int64_t{1} << 40) / product ? int64_t{1} << 40 : product * d;
  return product;
}

/// Reads the positions of results of `shape` from an array of `numbers`: axis by axis, or as lanes.
void ReadPositions(const ArrayType& type, int64_t results, WarpSpec* spec) {
  spec->coordinates = type.scalar;
  spec->axis_stride = type.lanes > 1 ? 1 : results;
  spec->result_stride = type.lanes > 1 ? type.lanes : 1;
}

}  // namespace

Scalar BetweenOf(Scalar scalar) {
  const bool single = CoefficientsOf(RealOf(scalar)) == Scalar::kF32;
  if (IsComplex(scalar)) return single ? Scalar::kC64 : Scalar::kC128;
  return single ? Scalar::kF32 : Scalar::kF64;
}

absl::Status AddSpline(math::SampleEdge edge, size_t axis, int64_t padding, ChainBuilder* chain) {
  ArrayType out = chain->type();
  out.scalar = BetweenOf(out.scalar);
  SplineSpec spec{.in = RealOf(chain->type().scalar),
                  .out = RealOf(out.scalar),
                  .edge = edge,
                  .n = out.dims[axis],
                  .inner = PartsOf(out),
                  .padding = padding};
  for (size_t d = 0; d < out.dims.size(); ++d)
    (d < axis ? spec.outer : spec.inner) *= d == axis ? 1 : out.dims[d];
  out.dims[axis] = spec.made();
  return chain->Add(spec, std::move(out));
}

absl::Status PlanOp(const AffineOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  const size_t rank = type.dims.size();
  OCTAVO_ASSIGN_OR_RETURN(const SamplingRules rules, Resolved(op.rules, *chain));
  if (op.matrix.size() != rank * rank) {
    return chain->Bad("matrix", absl::StrCat("has ", op.matrix.size(), " numbers; allowed ",
                                             rank * rank, " for ", type.Text()));
  }
  if (!op.offset.empty() && op.offset.size() != rank) {
    return chain->Bad("offset", absl::StrCat("has ", op.offset.size(), " numbers; allowed none or ",
                                             rank, " for ", type.Text()));
  }
  if (!op.shape.empty() && op.shape.size() != rank) {
    return chain->Bad("shape", absl::StrCat("has ", op.shape.size(), " numbers; allowed none or ",
                                            rank, " for ", type.Text()));
  }
  for (const auto& [name, values] :
       {std::pair{"matrix", &op.matrix}, std::pair{"offset", &op.offset}}) {
    for (size_t i = 0; i < values->size(); ++i) {
      if (!std::isfinite((*values)[i]))
        return chain->Bad(
            name, absl::StrCat("[", i, "] is ", (*values)[i], "; allowed are finite numbers"));
    }
  }
  OCTAVO_ASSIGN_OR_RETURN(std::vector<int64_t> shape,
                          ShapeOf(op.shape.empty() ? type.dims : op.shape, type.dims, *chain));
  WarpSpec spec{.positions = WarpPositions::kMatrix};
  const size_t first = 3 - rank;
  for (size_t d = 0; d < rank; ++d) {
    if (!op.offset.empty()) spec.offset[first + d] = op.offset[d];
    for (size_t e = 0; e < rank; ++e) spec.matrix[first + d][first + e] = op.matrix[d * rank + e];
  }
  return AddWarp(rules, std::move(shape), spec, chain);
}

absl::Status PlanOp(const MapCoordinatesOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  const int64_t rank = type.rank();
  OCTAVO_ASSIGN_OR_RETURN(const SamplingRules rules, Resolved(op.rules, *chain));
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType* const from,
                          Second(op.other, "coordinates", "coordinates", *chain));
  std::vector<int64_t> shape;
  if (op.shape.size() > 3)
    return chain->Bad("shape", absl::StrCat("has ", op.shape.size(), " numbers; allowed 0 to 3"));
  if (!op.shape.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(shape, ShapeOf(op.shape, {}, *chain));
  } else if (from->lanes > 1) {
    shape = from->dims;
  } else if (from->rank() > 1 && from->dims[0] == rank) {
    shape.assign(from->dims.begin() + 1, from->dims.end());
  }
  const bool lanes = from->lanes == 1 || from->lanes == rank;
  if (shape.empty() || !lanes || from->numbers() != rank * Product(shape)) {
    return chain->Bad(
        "coordinates",
        absl::StrCat(
            "is ", from->Text(), "; allowed for ", type.Text(), ": [", rank,
            ", ...], one coordinate after the other, or elements of ", rank, " lanes",
            op.shape.empty()
                ? std::string("; with a shape, as many numbers as the coordinates of that")
                : absl::StrCat(": ", rank, " x ", absl::StrJoin(op.shape, " x "), " numbers")));
  }
  WarpSpec spec{.positions = WarpPositions::kCoordinates, .other_index = op.other};
  ReadPositions(*from, Product(shape), &spec);
  return AddWarp(rules, std::move(shape), spec, chain);
}

absl::Status PlanOp(const DisplaceOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  const int64_t rank = type.rank();
  OCTAVO_ASSIGN_OR_RETURN(const SamplingRules rules, Resolved(op.rules, *chain));
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType* const from,
                          Second(op.other, "field", "displacements", *chain));
  std::vector<int64_t> apart = type.dims, joined = type.dims;
  apart.insert(apart.begin(), rank);
  joined[0] *= rank;
  const bool fits = from->lanes == 1 ? from->dims == apart || from->dims == joined
                                     : from->lanes == rank && from->dims == type.dims;
  if (!fits) {
    return chain->Bad("field",
                      absl::StrCat("is ", from->Text(), "; allowed for ", type.Text(), ": [",
                                   absl::StrJoin(rank < 3 ? apart : joined, ", "), "], or [",
                                   absl::StrJoin(type.dims, ", "), "] with ", rank, " lanes"));
  }
  WarpSpec spec{.positions = WarpPositions::kDisplacement, .other_index = op.other};
  ReadPositions(*from, Product(type.dims), &spec);
  return AddWarp(rules, type.dims, spec, chain);
}

absl::Status PlanOp(const ShiftOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  OCTAVO_ASSIGN_OR_RETURN(const SamplingRules rules, Resolved(op.rules, *chain));
  OCTAVO_ASSIGN_OR_RETURN(const int along, chain->Axis("axis", op.axis));
  OCTAVO_ASSIGN_OR_RETURN(const ArrayType* const from,
                          Second(op.other, "amounts", "amounts", *chain));
  const auto axis = static_cast<size_t>(along);
  std::vector<int64_t> columns = type.dims;
  columns.erase(columns.begin() + along);
  if (columns.empty()) columns = {1};
  if (from->lanes != 1 || from->dims != columns) {
    return chain->Bad(
        "amounts",
        absl::StrCat("is ", from->Text(), "; allowed [", absl::StrJoin(columns, ", "),
                     "], an amount for each column along axis ", along, " of ", type.Text()));
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<int64_t> padding,
                          AddCoefficients(rules, {axis}, chain));
  ShiftSpec spec{.in = RealOf(chain->type().scalar),
                 .out = RealOf(type.scalar),
                 .amounts = from->scalar,
                 .sampling = rules.sampling,
                 .edge = rules.edge,
                 .complex = IsComplex(type.scalar),
                 .n = type.dims[axis],
                 .parts = PartsOf(type),
                 .padding = padding[axis],
                 .constant = rules.constant,
                 .other_index = op.other};
  for (size_t d = 0; d < type.dims.size(); ++d)
    (d < axis ? spec.outer : spec.inner) *= d == axis ? 1 : type.dims[d];
  return chain->Add(spec, type);
}

}  // namespace octavo::inline gpu
