// The tables of a resize along one axis.

#include <algorithm>
#include <cmath>

#include "gpu/array/internal.h"
#include "gpu/math/sampling.h"

namespace octavo::inline gpu {
namespace {

// The σ of the Gaussian that smooths an axis before it shrinks; 0 = no smoothing.
double SigmaOf(const ResizeOp& op, int64_t n, int64_t m) {
  const double shrink = static_cast<double>(n) / static_cast<double>(m);
  return op.anti_aliasing && shrink > 1 ? (shrink - 1) / 2 : 0;
}

// What one result is made of, before smoothing: `weight` of the samples from `first` on.
struct Sampled {
  int64_t first = 0;
  std::vector<double> weight;
};
Sampled SampledAt(math::Sampling sampling, double x) {
  const double left = std::floor(sampling == math::Sampling::kNearest ? x + 0.5 : x), t = x - left;
  const auto first = static_cast<int64_t>(left);
  switch (sampling) {
    case math::Sampling::kNearest: return {.first = first, .weight = {1}};
    case math::Sampling::kCubic: {
      double weight[4];
      math::SplineWeights(t, weight);
      return {.first = first - 1, .weight = {weight, weight + 4}};
    }
    default: return {.first = first, .weight = {1 - t, t}};
  }
}

}  // namespace

int64_t ResizeRadius(const ResizeOp& op, int64_t n, int64_t m) {
  return std::lround(4 * SigmaOf(op, n, m));
}

int64_t ResizeTaps(const ResizeOp& op, int64_t radius) {
  return 2 * radius + static_cast<int64_t>(SampledAt(op.sampling, 0).weight.size());
}

math::SampleEdge EdgeOf(const ResizeOp& op) {
  const bool mirror =
      op.edge == ResizeEdge::kMirror || (op.edge == ResizeEdge::kDefault && !op.corner_aligned);
  return mirror ? math::SampleEdge::kMirror : math::SampleEdge::kReflect;
}

AxisTaps TapsOfResize(const ResizeOp& op, int64_t n, int64_t m) {
  const double sigma = SigmaOf(op, n, m);
  const int64_t radius = ResizeRadius(op, n, m);
  const math::SampleEdge edge = EdgeOf(op);
  std::vector<double> kernel;
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k) {
    kernel.push_back(radius == 0 ? 1
                                 : std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)));
    sum += kernel.back();
  }
  AxisTaps taps;
  taps.index.reserve(static_cast<size_t>(m * ResizeTaps(op, radius)));
  taps.weight.reserve(static_cast<size_t>(m * ResizeTaps(op, radius)));
  for (int64_t i = 0; i < m; ++i) {
    // The products come before the division, so that the last corner is exactly n - 1.
    const double x =
        op.corner_aligned
            ? (m == 1 ? 0.0 : static_cast<double>(i * (n - 1)) / static_cast<double>(m - 1))
            : static_cast<double>((2 * i + 1) * n - m) / static_cast<double>(2 * m);
    // Beyond its ends the smoothed array continues by the same rule as the array itself, because
    // the Gaussian is symmetric.
    const Sampled sampled = SampledAt(op.sampling, x);
    const auto count = static_cast<int64_t>(sampled.weight.size());
    for (int64_t k = -radius; k < radius + count; ++k) {
      double weight = 0;
      for (int64_t j = std::max<int64_t>(0, k - radius); j < std::min(count, k + radius + 1); ++j) {
        weight +=
            sampled.weight[static_cast<size_t>(j)] * kernel[static_cast<size_t>(k - j + radius)];
      }
      taps.weight.push_back(weight / sum);
      taps.index.push_back(static_cast<int32_t>(math::Folded(edge, sampled.first + k, n)));
    }
  }
  return taps;
}

}  // namespace octavo::inline gpu
