// Filters over neighbours: Gaussian, uniform, median.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/array/chain_builder.h"
#include "gpu/array/filters.h"
#include "gpu/array/internal.h"
#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

// The most samples on either side of a kernel's centre.
constexpr int64_t kMostRadius = 1 << 16;

absl::Status CheckEdge(math::Edge edge, bool constant, ChainBuilder* chain) {
  const bool known = edge >= math::Edge::kReflect && edge <= math::Edge::kWrap;
  if (known && (constant || edge != math::Edge::kConstant)) return absl::OkStatus();
  return chain->Bad("edge", absl::StrCat(known ? "is CONSTANT" : "has the unknown value ",
                                         known ? "" : absl::StrCat(static_cast<int>(edge)),
                                         "; allowed REFLECT, NEAREST, MIRROR, ",
                                         constant ? "CONSTANT, " : "", "WRAP"));
}

absl::Status CheckValue(double value, math::Edge edge, ChainBuilder* chain) {
  if (std::isnan(value) || std::isinf(value)) return chain->Bad("edge_value", "is not finite");
  if (value != 0 && edge != math::Edge::kConstant)
    return chain->Bad("edge_value",
                      absl::StrCat("is ", value, "; only the edge CONSTANT takes one, else 0"));
  if (value != 0 && IsComplex(chain->type().scalar))
    return chain->Bad("edge_value", absl::StrCat("is ", value, "; allowed 0 for complex numbers"));
  return absl::OkStatus();
}

// A list with a value for each axis.
template <class T>
absl::StatusOr<std::vector<T>> PerAxis(const char* name, const std::vector<T>& given,
                                       const ChainBuilder& chain) {
  const size_t rank = chain.type().dims.size();
  if (given.size() == 1) return std::vector<T>(rank, given[0]);
  if (given.size() == rank) return given;
  return chain.Bad(name, absl::StrCat("has ", given.size(), " numbers; allowed 1 or ", rank,
                                      " for ", chain.type().Text()));
}

// Adds the correlations along the axes that have a kernel. If none has, only the type changes.
absl::Status CorrelateAxes(const std::vector<FilterKernel>& kernels, math::Edge edge, double value,
                           ChainBuilder* chain) {
  const ArrayType first = chain->type();
  const Scalar result = FloatOf(first.scalar);
  const int64_t parts = IsComplex(first.scalar) ? 2 : 1;
  bool changed = false;
  for (size_t axis = 0; axis < kernels.size(); ++axis) {
    if (kernels[axis].weight.empty()) continue;
    const ArrayType type = chain->type();
    CorrelateSpec spec{.in = RealOf(type.scalar),
                       .out = RealOf(result),
                       .n = type.dims[axis],
                       .inner = type.lanes * parts,
                       .taps = static_cast<int64_t>(kernels[axis].weight.size()),
                       .before = kernels[axis].before,
                       .edge = edge,
                       .value = value};
    for (size_t d = 0; d < type.dims.size(); ++d) {
      if (d != axis) (d < axis ? spec.outer : spec.inner) *= type.dims[d];
    }
    spec.weight_offset = chain->AddTable(kernels[axis].weight);
    ArrayType out = type;
    out.scalar = result;
    OCTAVO_RETURN_IF_ERROR(chain->Add(spec, std::move(out)));
    changed = true;
  }
  return changed ? absl::OkStatus() : chain->Map({}, result);
}

}  // namespace

FilterKernel GaussianKernel(double sigma, int64_t order, int64_t radius) {
  FilterKernel kernel{.before = radius};
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k) {
    const auto x = static_cast<double>(k);
    kernel.weight.push_back(std::exp(-0.5 * x * x / (sigma * sigma)));
    sum += kernel.weight.back();
  }
  const double variance = sigma * sigma;
  for (int64_t k = -radius; k <= radius; ++k) {
    const auto x = static_cast<double>(k);
    double& weight = kernel.weight[static_cast<size_t>(k + radius)];
    weight /= sum;
    if (order == 1) weight *= x / variance;
    if (order == 2) weight *= x * x / (variance * variance) - 1 / variance;
  }
  return kernel;
}

absl::Status PlanOp(const GaussianOp& op, ChainBuilder* chain) {
  const char* const name = op.step.empty() ? "sigma" : "sigma_um";
  OCTAVO_ASSIGN_OR_RETURN(const auto sigmas, PerAxis(name, op.sigma, *chain));
  OCTAVO_ASSIGN_OR_RETURN(
      const auto orders,
      PerAxis("order", op.order.empty() ? std::vector<int64_t>{0} : op.order, *chain));
  OCTAVO_ASSIGN_OR_RETURN(
      const auto steps,
      PerAxis("step", op.step.empty() ? std::vector<double>{1} : op.step, *chain));
  if (!(op.truncate > 0 && op.truncate <= 16))
    return chain->Bad("truncate", absl::StrCat("is ", op.truncate, "; allowed above 0 to 16"));
  OCTAVO_RETURN_IF_ERROR(CheckEdge(op.edge, /*constant=*/true, chain));
  OCTAVO_RETURN_IF_ERROR(CheckValue(op.value, op.edge, chain));
  std::vector<FilterKernel> kernels(sigmas.size());
  for (size_t d = 0; d < sigmas.size(); ++d) {
    const double sigma = sigmas[d] / steps[d],
                 most = static_cast<double>(kMostRadius) / op.truncate;
    if (!(sigma >= 0 && sigma <= most)) {
      return chain->Bad(
          name, absl::StrCat("[", d, "] is ", sigmas[d], "; allowed 0 to ", most * steps[d]));
    }
    if (orders[d] < 0 || orders[d] > 2)
      return chain->Bad("order", absl::StrCat("[", d, "] is ", orders[d], "; allowed 0 to 2"));
    if (orders[d] > 0 && sigma == 0) {
      return chain->Bad("order", absl::StrCat("[", d, "] is ", orders[d],
                                              " where sigma is 0; allowed 0: a derivative needs a "
                                              "sigma"));
    }
    const auto radius = static_cast<int64_t>(op.truncate * sigma + 0.5);
    if (orders[d] == 0 && radius == 0) continue;
    kernels[d] = GaussianKernel(sigma, orders[d], radius);
    for (double& weight : kernels[d].weight)
      weight /= std::pow(steps[d], static_cast<double>(orders[d]));
  }
  return CorrelateAxes(kernels, op.edge, op.value, chain);
}

absl::Status PlanOp(const UniformOp& op, ChainBuilder* chain) {
  const char* const name = op.step.empty() ? "size" : "size_um";
  OCTAVO_ASSIGN_OR_RETURN(const auto sizes, PerAxis(name, op.size, *chain));
  OCTAVO_ASSIGN_OR_RETURN(
      const auto steps,
      PerAxis("step", op.step.empty() ? std::vector<double>{1} : op.step, *chain));
  OCTAVO_RETURN_IF_ERROR(CheckEdge(op.edge, /*constant=*/true, chain));
  OCTAVO_RETURN_IF_ERROR(CheckValue(op.value, op.edge, chain));
  std::vector<FilterKernel> kernels(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    const double size = sizes[d] / steps[d];
    if (!(size >= 0 && size <= static_cast<double>(kMostRadius))) {
      return chain->Bad(name, absl::StrCat("[", d, "] is ", sizes[d], "; allowed 0 to ",
                                           static_cast<double>(kMostRadius) * steps[d]));
    }
    const auto samples = static_cast<int64_t>(std::lround(size));
    if (samples <= 1) continue;
    kernels[d] = {.weight = std::vector<double>(static_cast<size_t>(samples),
                                                1 / static_cast<double>(samples)),
                  .before = samples / 2};
  }
  return CorrelateAxes(kernels, op.edge, op.value, chain);
}

absl::Status PlanOp(const MedianOp& op, ChainBuilder* chain) {
  const ArrayType& type = chain->type();
  OCTAVO_RETURN_IF_ERROR(chain->NoComplex());
  if (op.size != 3 && op.size != 5)
    return chain->Bad("size", absl::StrCat("is ", op.size, "; allowed 3 and 5"));
  OCTAVO_RETURN_IF_ERROR(CheckEdge(op.edge, /*constant=*/false, chain));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<bool> chosen, chain->Axes(op.axes));
  const ArrayLayout layout(type);
  MedianSpec spec{.scalar = type.scalar,
                  .size = static_cast<int>(op.size),
                  .windows = static_cast<int>(std::count(chosen.begin(), chosen.end(), true)),
                  .edge = op.edge};
  // The window slides along the slowest of its axes: then neighbouring threads read neighbours.
  bool slides = false;
  int next = 0;
  for (int d = 0; d < 4; ++d) {
    const int axis = d - (3 - type.rank());
    const bool window = axis >= 0 && d < 3 && chosen[static_cast<size_t>(axis)];
    const StridedAxis here{
        .extent = layout.extent[d], .stride = layout.stride[d], .window = window};
    if (window && !slides) {
      spec.slide = here;
      slides = true;
    } else {
      spec.rest[next++] = here;
    }
  }
  return chain->Add(spec, type);
}

}  // namespace octavo::inline gpu
