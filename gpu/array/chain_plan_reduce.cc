// Operations whose result has fewer numbers than their input: reductions, slabs, percentiles,
// histograms.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

// The axes to reduce are those of `chosen`. If begin < end, there is one such axis, and only its
// samples [begin, end) are reduced.
AxesSpec Split(const ArrayType& type, const std::vector<bool>& chosen, int64_t begin, int64_t end) {
  ArrayLayout layout(type);
  struct Part {
    int64_t extent, stride;
    bool run;
  };
  std::vector<Part> parts;
  AxesSpec out;
  for (int d = 0; d < 4; ++d) {
    const int axis = d - (3 - type.rank());
    const bool run = axis >= 0 && d < 3 && chosen[static_cast<size_t>(axis)];
    if (run && end > begin) {
      layout.extent[d] = end - begin;
      out.offset = begin * layout.stride[d];
    }
    if (layout.extent[d] == 1) continue;
    const Part part{layout.extent[d], layout.stride[d], run};
    if (!parts.empty() && parts.back().run == run &&
        parts.back().stride == part.extent * part.stride) {
      parts.back() = {parts.back().extent * part.extent, part.stride, run};
    } else {
      parts.push_back(part);
    }
  }
  // Kept and reduced axes alternate now, so that of four axes at most two are of a kind. The last
  // of a kind is the inner one.
  int kept = 1, ran = 1;
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
    int& at = it->run ? ran : kept;
    (it->run ? out.run : out.keep)[at] = it->extent;
    (it->run ? out.run_stride : out.keep_stride)[at--] = it->stride;
  }
  return out;
}

// The dims that remain when the chosen axes are reduced; with keep_dims a reduced axis becomes 1.
std::vector<int64_t> Without(const ArrayType& type, const std::vector<bool>& chosen,
                             bool keep_dims) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    if (!chosen[d]) dims.push_back(type.dims[d]);
    if (chosen[d] && keep_dims) dims.push_back(1);
  }
  if (dims.empty()) dims.push_back(1);
  return dims;
}

// Adds a reduction with a result of `dims`; out = Scalar{} chooses its type.
absl::Status Reduce(math::Reduction kind, math::Part part, const AxesSpec& axes, bool skip_nan,
                    Scalar out, const MaskSpec& mask, std::vector<int64_t> dims,
                    ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  const bool ordered = kind != math::Reduction::kSum && kind != math::Reduction::kMean;
  if (ordered && part == math::Part::kAll) OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  const Scalar in = part == math::Part::kAll ? type.scalar : RealOf(type.scalar);
  if (out == Scalar{}) {
    const bool extreme = kind == math::Reduction::kMin || kind == math::Reduction::kMax;
    out = extreme                                           ? in
          : kind == math::Reduction::kSum && IsIntegral(in) ? Scalar::kF64
                                                            : FloatOf(in);
    // A magnitude of half-precision numbers is stored as one; it is not made of f16 alone.
    if (extreme && part != math::Part::kAll && IsComplex(type.scalar)) out = FloatOf(in);
  }
  if (IsComplex(in) && !IsComplex(out))
    return chain->Bad("type", absl::StrCat("is ", NameOf(out), "; the result is complex"));
  ReduceSpec spec{.in = type.scalar,
                  .out = out,
                  .part = part,
                  .kind = kind,
                  .skip_nan = skip_nan,
                  .axes = axes,
                  .mask = mask};
  spec.parts =
      std::clamp<int64_t>(65536 / axes.results(), 1, std::max<int64_t>(1, axes.length() / 1024));
  return chain->Add(spec, {.scalar = out, .lanes = type.lanes, .dims = std::move(dims)});
}

// The mask of a step on the current array.
absl::StatusOr<MaskSpec> Masked(ArrayRef array, const ChainBuilder& chain) {
  OCTAVO_RETURN_IF_ERROR(CheckMask(array, chain));
  return MaskSpec{.array = array, .lanes = chain.type().lanes};
}

absl::Status UnknownKind(math::Reduction kind, const ChainBuilder* chain) {
  const int number = static_cast<int>(kind);
  return chain->Bad("kind", absl::StrCat("is ", number == 0 ? "not given" : absl::StrCat(number),
                                         "; allowed SUM, MIN, MAX, MEAN, STD"));
}

}  // namespace

absl::Status CheckMask(ArrayRef array, const ChainBuilder& chain) {
  if (!array.given()) return absl::OkStatus();
  const ArrayType& mask = chain.others()[array.index];
  const ArrayType& type = chain.type();
  if (mask.scalar == Scalar::kU8 && mask.lanes == 1 && mask.dims == type.dims)
    return absl::OkStatus();
  return chain.Bad("mask", absl::StrCat("is ", mask.Text(), "; ", type.Text(),
                                        " wants u8 of its own shape, with one lane"));
}

absl::Status PlanOp(const ReduceOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->KnownScalar(op.scalar));
  if (op.kind < math::Reduction::kSum || op.kind > math::Reduction::kStd) {
    return UnknownKind(op.kind, chain);
  }
  if (op.part > math::Part::kPower)
    return chain->Bad("part", absl::StrCat("has the unknown value ", static_cast<int>(op.part)));
  OCTAVO_ASSIGN_OR_RETURN(const auto chosen, chain->Axes(op.axes));
  OCTAVO_ASSIGN_OR_RETURN(const MaskSpec mask, Masked(op.mask, *chain));
  return Reduce(op.kind, op.part, Split(type, chosen, 0, 0), op.skip_nan, op.scalar, mask,
                Without(type, chosen, op.keep_dims), chain);
}

absl::Status PlanOp(const SlabOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  if (op.kind < math::Reduction::kSum || op.kind > math::Reduction::kStd) {
    return UnknownKind(op.kind, chain);
  }
  OCTAVO_ASSIGN_OR_RETURN(const int axis, chain->Axis("axis", op.axis));
  const int64_t extent = type.dims[static_cast<size_t>(axis)], end = op.end == 0 ? extent : op.end;
  if (op.begin < 0 || op.begin >= extent)
    return chain->Bad("begin", absl::StrCat("is ", op.begin, "; allowed 0 to ", extent - 1));
  if (end <= op.begin || end > extent)
    return chain->Bad("end", absl::StrCat("is ", end, "; allowed ", op.begin + 1, " to ", extent));
  std::vector<bool> chosen(type.dims.size(), false);
  chosen[static_cast<size_t>(axis)] = true;
  const math::Part part = IsComplex(type.scalar) ? math::Part::kMagnitude : math::Part::kAll;
  return Reduce(op.kind, part, Split(type, chosen, op.begin, end), true, Scalar{}, {},
                Without(type, chosen, op.keep_dims), chain);
}

absl::Status PlanOp(const PercentileOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  if (op.percentiles.empty() || op.percentiles.size() > 16) {
    return chain->Bad("percentiles",
                      absl::StrCat("has ", op.percentiles.size(), " numbers; allowed 1 to 16"));
  }
  SelectSpec spec{.in = type.scalar, .percentiles = static_cast<int>(op.percentiles.size())};
  for (size_t p = 0; p < op.percentiles.size(); ++p) {
    if (!(op.percentiles[p] >= 0 && op.percentiles[p] <= 100)) {
      return chain->Bad("percentiles",
                        absl::StrCat("[", p, "] is ", op.percentiles[p], "; allowed 0 to 100"));
    }
    spec.percentile[p] = op.percentiles[p];
  }
  OCTAVO_ASSIGN_OR_RETURN(const auto chosen, chain->Axes(op.axes));
  spec.axes = Split(type, chosen, 0, 0);
  OCTAVO_ASSIGN_OR_RETURN(spec.mask, Masked(op.mask, *chain));
  if (spec.axes.length() >= int64_t{1} << 32)
    return chain->Bad("axes", absl::StrCat("make ", spec.axes.length(),
                                           " numbers a percentile; allowed below 2^32"));
  // The f64 key of a number with few digits ends in zeros (or in ones, if it is negative).
  const int64_t size = SizeOf(type.scalar);
  spec.digits = size <= 2 ? 4 : type.scalar == Scalar::kF32 ? 5 : size == 4 ? 6 : 8;
  spec.out = size == 8 || spec.digits == 6 ? Scalar::kF64 : Scalar::kF32;
  ArrayType out{.scalar = spec.out,
                .lanes = type.lanes,
                .dims = Without(type, chosen, op.keep_dims && spec.percentiles == 1)};
  if (spec.percentiles > 1) {
    const bool all = std::find(chosen.begin(), chosen.end(), false) == chosen.end();
    if (all) out.dims.clear();
    out.dims.insert(out.dims.begin(), spec.percentiles);
  }
  return chain->Add(spec, std::move(out));
}

absl::Status PlanOp(const HistogramOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  OCTAVO_RETURN_IF_ERROR(chain->KnownScalar(op.scalar));
  if (op.bins < 1 || op.bins > 65536)
    return chain->Bad("bins", absl::StrCat("is ", op.bins, "; allowed 1 to 65536"));
  HistogramSpec spec{
      .in = type.scalar, .count = type.numbers(), .bins = op.bins, .lo = op.lo, .hi = op.hi};
  OCTAVO_ASSIGN_OR_RETURN(spec.mask, Masked(op.mask, *chain));
  if (!std::isfinite(op.lo)) return chain->Bad("lo", "is not finite");
  if (!std::isfinite(op.hi)) return chain->Bad("hi", "is not finite");
  if (!(op.lo < op.hi)) {
    const bool small = IsIntegral(type.scalar) && SizeOf(type.scalar) <= 2;
    if (!small || op.lo != 0 || op.hi != 0) {
      return chain->Bad("hi", absl::StrCat("is ", op.hi, "; allowed above lo, which is ", op.lo,
                                           " (both 0: the whole range of 8- and 16-bit integers)"));
    }
    const double range = SizeOf(type.scalar) == 1 ? 256 : 65536;
    spec.lo = type.scalar == Scalar::kI8 || type.scalar == Scalar::kI16 ? -range / 2 : 0;
    spec.hi = spec.lo + range;
  }
  OCTAVO_RETURN_IF_ERROR(chain->Add(spec, {.scalar = Scalar::kU64, .lanes = 1, .dims = {op.bins}}));
  return op.scalar == Scalar::kU64 || op.scalar == Scalar{} ? absl::OkStatus()
                                                            : chain->Map({}, op.scalar);
}

absl::Status PlanOp(const ArgExtremeOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  OCTAVO_ASSIGN_OR_RETURN(const int axis, chain->Axis("axis", op.axis));
  OCTAVO_ASSIGN_OR_RETURN(const MaskSpec mask, Masked(op.mask, *chain));
  const Scalar out = op.scalar == Scalar{} ? Scalar::kI64 : op.scalar;
  std::vector<bool> chosen(type.dims.size(), false);
  chosen[static_cast<size_t>(axis)] = true;
  return chain->Add(
      ArgExtremeSpec{.in = type.scalar,
                     .out = out,
                     .extreme = op.extreme,
                     .skip_nan = op.skip_nan,
                     .axes = Split(type, chosen, 0, 0),
                     .mask = mask.array,
                     .lanes = mask.lanes},
      {.scalar = out, .lanes = type.lanes, .dims = Without(type, chosen, op.keep_dims)});
}

}  // namespace octavo::inline gpu
