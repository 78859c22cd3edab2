// The tables of a resize along one axis.

#include <algorithm>
#include <cmath>

#include "gpu/array/internal.h"

namespace octavo::inline gpu {
namespace {

// The σ of the Gaussian that smooths an axis before it shrinks; 0 = no smoothing.
double SigmaOf(const ResizeOp& op, int64_t n, int64_t m) {
  const double shrink = static_cast<double>(n) / static_cast<double>(m);
  return op.anti_aliasing && shrink > 1 ? (shrink - 1) / 2 : 0;
}

// The sample that continues the array beyond its ends. With kMirror the end sample is the centre of
// symmetry; with kReflect it is repeated.
int64_t InsideOf(int64_t i, int64_t n, bool mirror) {
  if (n == 1) return 0;
  const int64_t period = mirror ? 2 * n - 2 : 2 * n;
  i = ((i % period) + period) % period;
  return i < n ? i : period - (mirror ? 0 : 1) - i;
}

}  // namespace

int64_t ResizeRadius(const ResizeOp& op, int64_t n, int64_t m) {
  return std::lround(4 * SigmaOf(op, n, m));
}

AxisTaps TapsOfResize(const ResizeOp& op, int64_t n, int64_t m) {
  const double sigma = SigmaOf(op, n, m);
  const int64_t radius = ResizeRadius(op, n, m);
  const bool mirror =
      op.edge == ResizeEdge::kMirror || (op.edge == ResizeEdge::kDefault && !op.corner_aligned);
  std::vector<double> kernel;
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k) {
    kernel.push_back(radius == 0 ? 1
                                 : std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)));
    sum += kernel.back();
  }
  AxisTaps taps;
  taps.index.reserve(static_cast<size_t>(m * ResizeTaps(radius)));
  taps.weight.reserve(static_cast<size_t>(m * ResizeTaps(radius)));
  for (int64_t i = 0; i < m; ++i) {
    // The products come before the division, so that the last corner is exactly n - 1.
    double x = op.corner_aligned
                   ? (m == 1 ? 0.0 : static_cast<double>(i * (n - 1)) / static_cast<double>(m - 1))
                   : static_cast<double>((2 * i + 1) * n - m) / static_cast<double>(2 * m);
    if (op.nearest) x = std::floor(x + 0.5);
    // Beyond its ends the smoothed array continues by the same rule as the array itself, because
    // the Gaussian is symmetric.
    const auto left = static_cast<int64_t>(std::floor(x));
    const double t = x - static_cast<double>(left);
    for (int64_t k = -radius; k <= radius + 1; ++k) {
      const double here = k <= radius ? kernel[static_cast<size_t>(k + radius)] : 0,
                   before = k > -radius ? kernel[static_cast<size_t>(k + radius - 1)] : 0;
      taps.weight.push_back(((1 - t) * here + t * before) / sum);
      taps.index.push_back(static_cast<int32_t>(InsideOf(left + k, n, mirror)));
    }
  }
  return taps;
}

}  // namespace octavo::inline gpu
