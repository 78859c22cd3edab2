#pragma once

// Private to this folder.

#include <cstdint>
#include <vector>

#include "gpu/array/array_ops.h"

namespace octavo::inline gpu {

/// Tables of TapsSpec: [m, taps].
struct AxisTaps {
  std::vector<int32_t> index;
  std::vector<double> weight;
};
/// Half width, in samples, of the smoothing before a resize of an axis from n to m samples; 0 = no
/// smoothing.
int64_t ResizeRadius(const ResizeOp& op, int64_t n, int64_t m);
constexpr int64_t ResizeTaps(int64_t radius) { return 2 * radius + 2; }
/// Smoothing and sampling in one step.
AxisTaps TapsOfResize(const ResizeOp& op, int64_t n, int64_t m);

}  // namespace octavo::inline gpu
