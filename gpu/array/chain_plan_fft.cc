// The Fourier transform along an axis.

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kMostFft = 1 << 24;  // samples along the axis

}  // namespace

absl::Status PlanOp(const FftOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_ASSIGN_OR_RETURN(const int axis, chain->Axis("axis", op.axis));
  if (type.lanes != 1)
    return chain->BadOp(absl::StrCat("is not offered for elements of ", type.lanes, " lanes"));
  const int64_t n = type.dims[static_cast<size_t>(axis)];
  if (n > kMostFft)
    return chain->Bad("axis", absl::StrCat("has ", n, " samples; allowed ", kMostFft));
  OCTAVO_RETURN_IF_ERROR(
      chain->Map({.multiply = {op.inverse ? 1.0 / static_cast<double>(n) : 1.0, 0}}, Scalar::kC64));
  const ArrayType whole = type;
  const ArrayLayout layout(type);
  const int at = 3 - type.rank() + axis;
  const bool last =
      std::all_of(layout.extent + at + 1, layout.extent + 4, [](int64_t e) { return e == 1; });
  // The transform works on rows. So the axis becomes the last one, and afterwards returns to its
  // place.
  if (!last) {
    const int order[4] = {at == 0 ? 1 : 0, at <= 1 ? 2 : 1, at, 3};
    int64_t extent[4], stride[4], back[4];
    int64_t step = 1;
    for (int d = 3; d >= 0; --d) {
      extent[d] = layout.extent[order[d]];
      stride[d] = layout.stride[order[d]];
      back[order[d]] = step;
      step *= extent[d];
    }
    OCTAVO_RETURN_IF_ERROR(chain->Gather(extent, stride, 0, whole));
    OCTAVO_RETURN_IF_ERROR(
        chain->Add(FftSpec{.n = n, .rows = type.numbers() / n, .inverse = op.inverse}, whole));
    return chain->Gather(layout.extent, back, 0, whole);
  }
  return chain->Add(FftSpec{.n = n, .rows = type.numbers() / n, .inverse = op.inverse}, whole);
}

}  // namespace octavo::inline gpu
