// Operations that move numbers: copy, crop, flip, transpose, paste, concatenate, resize.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/array/chain_builder.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

// The most weights for one axis of a resize. A weight and its index take 12 bytes, on the device
// and on the host.
constexpr int64_t kMostWeights = 1 << 26;

// Copies an array of the layout `box` into one of the layout `whole`, from `offset` on.
GatherSpec Scatter(Scalar scalar, const ArrayLayout& box, const ArrayLayout& whole,
                   int64_t offset) {
  GatherSpec spec = ChainBuilder::Elements(SizeOf(scalar), box.extent, whole.stride);
  spec.offset = offset;
  spec.scatter = true;
  return spec;
}

}  // namespace

absl::Status PlanOp(const CopyOp&, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  const ArrayLayout layout(type);
  return chain->Gather(layout.extent, layout.stride, 0, type);
}

absl::Status PlanOp(const CropOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  ArrayLayout layout(type);
  int64_t offset = 0;
  ArrayType out = type;
  for (const auto& [name, values] :
       {std::pair{"start", &op.start}, std::pair{"count", &op.count}}) {
    if (!values->empty() && values->size() != type.dims.size()) {
      return chain->Bad(name, absl::StrCat("has ", values->size(), " numbers; allowed none or ",
                                           type.dims.size(), " for ", type.Text()));
    }
  }
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const int64_t extent = type.dims[d], start = op.start.empty() ? 0 : op.start[d];
    if (start < 0 || start >= extent)
      return chain->Bad("start",
                        absl::StrCat("[", d, "] is ", start, "; allowed 0 to ", extent - 1));
    const int64_t count = op.count.empty() || op.count[d] == 0 ? extent - start : op.count[d];
    if (count < 1 || count > extent - start)
      return chain->Bad("count",
                        absl::StrCat("[", d, "] is ", count, "; allowed 1 to ", extent - start));
    const size_t at = 3 - type.dims.size() + d;
    layout.extent[at] = out.dims[d] = count;
    offset += start * layout.stride[at];
  }
  return chain->Gather(layout.extent, layout.stride, offset, std::move(out));
}

absl::Status PlanOp(const FlipOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_ASSIGN_OR_RETURN(const auto chosen, chain->Axes(op.axes));
  ArrayLayout layout(type);
  int64_t offset = 0;
  for (size_t d = 0; d < chosen.size(); ++d) {
    const size_t at = 3 - chosen.size() + d;
    if (!chosen[d]) continue;
    offset += (layout.extent[at] - 1) * layout.stride[at];
    layout.stride[at] = -layout.stride[at];
  }
  return chain->Gather(layout.extent, layout.stride, offset, type);
}

absl::Status PlanOp(const TransposeOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  std::vector<int64_t> axes = op.axes;
  if (axes.empty()) {
    for (int d = type.rank() - 1; d >= 0; --d) axes.push_back(d);
  }
  if (axes.size() != type.dims.size())
    return chain->Bad(
        "axes", absl::StrCat("has ", axes.size(), " numbers; allowed none or ", type.dims.size()));
  OCTAVO_RETURN_IF_ERROR(chain->Axes(axes).status());
  const ArrayLayout layout(type);
  int64_t extent[4] = {1, 1, 1, layout.extent[3]}, stride[4] = {0, 0, 0, layout.stride[3]};
  ArrayType out = type;
  const size_t first = 3 - axes.size();
  for (size_t d = 0; d < axes.size(); ++d) {
    OCTAVO_ASSIGN_OR_RETURN(const int from, chain->Axis("axes", axes[d]));
    extent[first + d] = layout.extent[first + static_cast<size_t>(from)];
    stride[first + d] = layout.stride[first + static_cast<size_t>(from)];
    out.dims[d] = type.dims[static_cast<size_t>(from)];
  }
  return chain->Gather(extent, stride, 0, std::move(out));
}

absl::Status PlanOp(const PasteOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  const ArrayType& other = chain->others()[op.other];
  if (other.scalar != type.scalar || other.lanes != type.lanes || other.rank() != type.rank()) {
    return chain->Bad("other", absl::StrCat("is ", other.Text(), "; ", type.Text(),
                                            " wants its own type and as many axes"));
  }
  if (!op.start.empty() && op.start.size() != type.dims.size()) {
    return chain->Bad("start", absl::StrCat("has ", op.start.size(), " numbers; allowed none or ",
                                            type.dims.size(), " for ", type.Text()));
  }
  const ArrayLayout whole(type), box(other);
  int64_t offset = 0;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const int64_t start = op.start.empty() ? 0 : op.start[d];
    if (start < 0 || start > type.dims[d] - other.dims[d]) {
      const int64_t most = type.dims[d] - other.dims[d];
      return chain->Bad(most < 0 ? "other" : "start",
                        most < 0 ? absl::StrCat("is ", other.Text(), ", larger than ", type.Text())
                                 : absl::StrCat("[", d, "] is ", start, "; allowed 0 to ", most));
    }
    offset += start * whole.stride[3 - type.dims.size() + d];
  }
  PasteSpec spec;
  spec.pieces.push_back({.place = Scatter(type.scalar, whole, whole, 0)});
  spec.pieces.push_back({.from = {op.other}, .place = Scatter(type.scalar, box, whole, offset)});
  return chain->Add(std::move(spec), type);
}

absl::Status PlanOp(const ConcatenateOp& op, ChainBuilder* chain) {
  const ArrayType type = chain->type();
  OCTAVO_ASSIGN_OR_RETURN(const int axis, chain->Axis("axis", op.axis));
  if (op.others.empty() || op.others.size() > 8) {
    return chain->Bad("others", absl::StrCat("has ", op.others.size(), " arrays; allowed 1 to 8"));
  }
  const auto along = static_cast<size_t>(axis);
  ArrayType out = type;
  for (size_t i = 0; i < op.others.size(); ++i) {
    const ArrayType& other = chain->others()[op.others[i]];
    ArrayType as_this = other;
    if (as_this.rank() == type.rank()) as_this.dims[along] = type.dims[along];
    if (as_this != type) {
      return chain->Bad("others", absl::StrCat("[", i, "] is ", other.Text(), "; ", type.Text(),
                                               " wants its own type, and its own shape but for "
                                               "axis ",
                                               axis));
    }
    out.dims[along] += other.dims[along];
  }
  const ArrayLayout whole(out);
  PasteSpec spec;
  spec.pieces.push_back({.place = Scatter(type.scalar, ArrayLayout(type), whole, 0)});
  int64_t at = type.dims[along];
  for (const size_t index : op.others) {
    const ArrayType& other = chain->others()[index];
    spec.pieces.push_back({.from = {index},
                           .place = Scatter(type.scalar, ArrayLayout(other), whole,
                                            at * whole.stride[3 - type.dims.size() + along])});
    at += other.dims[along];
  }
  return chain->Add(std::move(spec), std::move(out));
}

absl::Status PlanOp(const ResizeOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  if (op.shape.size() != type.dims.size()) {
    return chain->Bad("shape", absl::StrCat("has ", op.shape.size(), " numbers; allowed ",
                                            type.dims.size(), " for ", type.Text()));
  }
  const Scalar stored = type.scalar;
  const bool cubic = op.sampling == math::Sampling::kCubic;
  std::vector<size_t> axes;
  for (size_t d = 0; d < op.shape.size(); ++d) {
    if (op.shape[d] < 0 || op.shape[d] > (1 << 20))
      return chain->Bad(
          "shape", absl::StrCat("[", d, "] is ", op.shape[d], "; allowed 0 (as it is) to 2^20"));
    if (op.shape[d] != 0 && op.shape[d] != type.dims[d]) axes.push_back(d);
  }
  if (axes.empty()) return PlanOp(CopyOp{}, chain);
  // Axes that shrink come first, so that the steps after them have less to read.
  std::vector<double> ratios;
  for (size_t d = 0; d < op.shape.size(); ++d)
    ratios.push_back(static_cast<double>(op.shape[d]) / static_cast<double>(type.dims[d]));
  std::stable_sort(axes.begin(), axes.end(),
                   [&](size_t a, size_t b) { return ratios[a] < ratios[b]; });
  for (const size_t axis : axes) {
    const int64_t n = type.dims[axis], m = op.shape[axis];
    const int64_t radius = ResizeRadius(op, n, m);
    if (radius > (1 << 16))
      return chain->Bad(
          "shape",
          absl::StrCat("[", axis, "] is ", m,
                       ", which smooths over more than 2^17 samples; allowed from ", n >> 15));
    const int64_t count = ResizeTaps(op, radius);
    if (m * count > kMostWeights) {
      return chain->Bad("shape", absl::StrCat("[", axis, "] is ", m, ", which takes ", m * count,
                                              " weights; allowed ", kMostWeights,
                                              " (shrink without anti_aliasing)"));
    }
    if (cubic && n > 1) OCTAVO_RETURN_IF_ERROR(AddSpline(EdgeOf(op), axis, 0, chain));
    TapsSpec spec{.in = type.scalar,
                  .out = axis == axes.back() ? stored : BetweenOf(type.scalar),
                  .n = n,
                  .m = m,
                  .taps = count};
    spec.inner = type.lanes;
    for (size_t d = 0; d < type.dims.size(); ++d)
      (d < axis ? spec.outer : spec.inner) *= d == axis ? 1 : type.dims[d];
    const AxisTaps taps = TapsOfResize(op, n, m);
    spec.index_offset = chain->AddTable(taps.index);
    spec.weight_offset = chain->AddTable(taps.weight);
    ArrayType out = type;
    out.scalar = spec.out;
    out.dims[axis] = m;
    OCTAVO_RETURN_IF_ERROR(chain->Add(spec, std::move(out)));
  }
  return absl::OkStatus();
}

}  // namespace octavo::inline gpu
