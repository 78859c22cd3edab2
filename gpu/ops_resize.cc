// The tables of a resize along one axis.

#include <algorithm>
#include <cmath>

#include "gpu/ops_parts.h"

namespace octavo {
namespace {

// Of the Gaussian before an axis shrinks; 0 = none.
double SigmaOf(const ResizeOp& op, int64_t n, int64_t m) {
  const double shrink = static_cast<double>(n) / static_cast<double>(m);
  return op.anti_aliasing && shrink > 1 ? (shrink - 1) / 2 : 0;
}

// Where a coordinate beyond the ends is mirrored to: d c b a | a b c d | d c b a.
int64_t Mirrored(int64_t i, int64_t n) {
  const int64_t period = 2 * n;
  i = ((i % period) + period) % period;
  return i < n ? i : period - 1 - i;
}

}  // namespace

int64_t ResizeRadius(const ResizeOp& op, int64_t n, int64_t m) { return std::lround(4 * SigmaOf(op, n, m)); }

AxisTaps TapsOfResize(const ResizeOp& op, int64_t n, int64_t m) {
  const double sigma = SigmaOf(op, n, m);
  const int64_t radius = ResizeRadius(op, n, m);
  std::vector<double> kernel;
  double sum = 0;
  for (int64_t k = -radius; k <= radius; ++k) {
    kernel.push_back(radius == 0 ? 1 : std::exp(-0.5 * static_cast<double>(k * k) / (sigma * sigma)));
    sum += kernel.back();
  }
  AxisTaps taps;
  taps.index.reserve(static_cast<size_t>(m * ResizeTaps(radius)));
  taps.weight.reserve(static_cast<size_t>(m * ResizeTaps(radius)));
  for (int64_t i = 0; i < m; ++i) {
    // Products before the division: the last corner is n - 1 exactly.
    double x = op.corner_aligned ? (m == 1 ? 0.0 : static_cast<double>(i * (n - 1)) / static_cast<double>(m - 1))
                                 : static_cast<double>((2 * i + 1) * n - m) / static_cast<double>(2 * m);
    x = std::clamp(x, 0.0, static_cast<double>(n - 1));
    if (op.nearest) x = std::min(std::floor(x + 0.5), static_cast<double>(n - 1));
    const auto left = static_cast<int64_t>(x);
    const double t = x - static_cast<double>(left);
    for (int64_t k = -radius; k <= radius + 1; ++k) {
      const double here = k <= radius ? kernel[static_cast<size_t>(k + radius)] : 0,
                   before = k > -radius ? kernel[static_cast<size_t>(k + radius - 1)] : 0;
      taps.weight.push_back(((1 - t) * here + t * before) / sum);
      taps.index.push_back(static_cast<int32_t>(Mirrored(left + k, n)));
    }
  }
  return taps;
}

}  // namespace octavo
