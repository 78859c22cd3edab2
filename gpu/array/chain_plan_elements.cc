// Elementwise operations: fill, scale, combine, functions, thresholds, choices.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {

Scalar RealOf(Scalar scalar) {
  return scalar == Scalar::kC128  ? Scalar::kF64
         : scalar == Scalar::kC64 ? Scalar::kF32
         : scalar == Scalar::kC32 ? Scalar::kF16
                                  : scalar;
}

Scalar FloatOf(Scalar scalar) {
  if (IsComplex(scalar)) return scalar == Scalar::kC128 ? Scalar::kC128 : Scalar::kC64;
  return scalar == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32;
}

bool FitsLastAxes(const ArrayType& other, const ArrayType& type, int64_t lanes) {
  return other.lanes == lanes && other.rank() <= type.rank() &&
         std::equal(other.dims.rbegin(), other.dims.rend(), type.dims.rbegin());
}

absl::Status PlanOp(const FillOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  if (op.value.im != 0 && !IsComplex(type.scalar))
    return chain->Bad("value.im", absl::StrCat("is ", op.value.im, "; allowed 0: the array is ",
                                               NameOf(type.scalar)));
  return chain->Map({.add = op.value, .fill = true}, type.scalar);
}

absl::Status PlanOp(const ScaleOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->KnownScalar(op.scalar));
  if (op.part > math::Part::kPower)
    return chain->Bad("part", absl::StrCat("has the unknown value ", static_cast<int>(op.part)));
  const Scalar out = op.scalar != Scalar{}         ? op.scalar
                     : op.part == math::Part::kAll ? type.scalar
                                                   : RealOf(type.scalar);
  if (op.part == math::Part::kAll && IsComplex(type.scalar) && !IsComplex(out)) {
    return chain->Bad("type", absl::StrCat("is ", NameOf(out),
                                           ", the numbers are complex; say which part of them"));
  }
  if (!IsComplex(out) && (op.multiply.im != 0 || op.add.im != 0)) {
    const bool factor = op.multiply.im != 0;
    return chain->Bad(factor ? "multiply.im" : "add.im",
                      absl::StrCat("is ", factor ? op.multiply.im : op.add.im,
                                   "; allowed 0: the result is ", NameOf(out)));
  }
  return chain->Map({.part = op.part, .multiply = op.multiply, .add = op.add}, out);
}

absl::Status PlanOp(const CombineOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  if (op.other >= chain->others().size())
    return chain->Bad("other", "is empty; name the second array");
  if (op.kind < Combination::kAdd || op.kind > Combination::kDivide) {
    return chain->Bad(
        "kind",
        absl::StrCat(
            "is ", op.kind == Combination{} ? "not given" : absl::StrCat(static_cast<int>(op.kind)),
            "; allowed ADD, SUBTRACT, MULTIPLY, DIVIDE"));
  }
  const ArrayType& other = chain->others()[op.other];
  if (!FitsLastAxes(other, type, type.lanes))
    return chain->Bad("other", absl::StrCat("is ", other.Text(), "; ", type.Text(),
                                            " wants its own shape, or that of its last axes"));
  if (IsComplex(other.scalar) && !IsComplex(type.scalar)) {
    return chain->Bad("other", absl::StrCat("is complex, ", type.Text(),
                                            " is not; scale the first to a complex type before"));
  }
  return chain->Map({.other = other.scalar,
                     .combination = op.kind,
                     .other_index = op.other,
                     .other_count = other.numbers()},
                    type.scalar);
}

absl::Status PlanOp(const FunctionOp& op, ChainBuilder* chain) {
  ArrayType out = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  if (op.function < math::Function::kLn || op.function > math::Function::kExp10)
    return chain->Bad("base",
                      absl::StrCat("has the unknown value ", static_cast<int>(op.function)));
  const FunctionSpec spec{
      .in = out.scalar, .function = op.function, .keep_rest = op.keep_rest, .count = out.numbers()};
  out.scalar = FloatOf(out.scalar);
  return chain->Add(spec, std::move(out));
}

namespace {

// `field` is the threshold's place in the operation: "", or "above.".
absl::StatusOr<AboveSpec> ResolveThreshold(const ThresholdOp& op, const std::string& field,
                                           ChainBuilder* chain) {
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  AboveSpec spec{.in = chain->type().scalar, .count = chain->type().numbers()};
  if (!op.otsu) {
    if (std::isnan(op.value)) return chain->Bad(field + "value", "is NaN; allowed are numbers");
    spec.threshold = op.value;
    return spec;
  }
  if (op.bins < 2 || op.bins > 4096)
    return chain->Bad(field + "otsu.bins", absl::StrCat("is ", op.bins, "; allowed 2 to 4096"));
  spec.bins = op.bins;
  return spec;
}

}  // namespace

absl::Status PlanOp(const ThresholdOp& op, ChainBuilder* chain) {
  OCTAVO_ASSIGN_OR_RETURN(const AboveSpec spec, ResolveThreshold(op, "", chain));
  ArrayType out = chain->type();
  out.scalar = Scalar::kU8;
  return chain->Add(spec, std::move(out));
}

absl::Status PlanOp(const ChooseOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  ChooseSpec spec{.in = type.scalar, .mask = op.mask, .other = op.other, .count = type.numbers()};
  spec.lanes = type.lanes;
  if (op.mask.given()) {
    const ArrayType& mask = chain->others()[op.mask.index];
    if (mask.scalar != Scalar::kU8 || !FitsLastAxes(mask, type, 1)) {
      return chain->Bad("mask", absl::StrCat("is ", mask.Text(), "; ", type.Text(),
                                             " wants u8 with one lane, of its own shape or that "
                                             "of its last axes"));
    }
    spec.mask_count = mask.numbers();
  } else {
    OCTAVO_ASSIGN_OR_RETURN(spec.above, ResolveThreshold(op.threshold, "above.", chain));
  }
  if (op.other.given()) {
    const ArrayType& other = chain->others()[op.other.index];
    if (other.scalar != type.scalar || !FitsLastAxes(other, type, type.lanes)) {
      return chain->Bad("other", absl::StrCat("is ", other.Text(), "; ", type.Text(),
                                              " wants its own type, and its own shape or that of "
                                              "its last axes"));
    }
    spec.other_count = other.numbers();
  } else if (op.value.im != 0 && !IsComplex(type.scalar)) {
    return chain->Bad("value.im", absl::StrCat("is ", op.value.im, "; allowed 0: the array is ",
                                               NameOf(type.scalar)));
  }
  math::Store(type.scalar, spec.value, 0, op.value);
  return chain->Add(spec, type);
}

}  // namespace octavo::inline gpu
