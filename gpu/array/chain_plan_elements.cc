// Elementwise operations: fill, scale, combine.

#include <algorithm>

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
  const bool fits = other.lanes == type.lanes && other.rank() <= type.rank() &&
                    std::equal(other.dims.rbegin(), other.dims.rend(), type.dims.rbegin());
  if (!fits)
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

}  // namespace octavo::inline gpu
