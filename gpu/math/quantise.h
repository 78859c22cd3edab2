#pragma once

#include <cstdint>

#include "gpu/math/array_ops.h"
#include "gpu/math/half.h"
#include "gpu/math/host_device.h"
#include "gpu/math/scalar.h"

// Numbers stored in fewer bits, shared by all backends.
namespace octavo::inline gpu::math {

/// The work of one launch. Integers: the window [lo, hi] becomes [0, top].
struct QuantiseSpec {
  Scalar out{};  // kU8, kU16 or kF16
  double lo = 0, width = 1, top = 0;
  int64_t count = 0;
};

/// The largest f16.
inline constexpr float kLargestHalf = 65504.0f;

/// Stores `x` as element `i` of `out`, and adds to the counts if it was clipped. Multiplies before
/// it divides: between the two and the rounding, no backend can fuse a product with a sum.
OCTAVO_HOST_DEVICE inline void Quantise(const QuantiseSpec& s, float x, int64_t i, void* out,
                                        uint32_t* below, uint32_t* above) {
  if (s.out == Scalar::kF16) {
    const bool low = x<-kLargestHalf, high = x> kLargestHalf;
    *below += low ? 1 : 0;
    *above += high ? 1 : 0;
    WriteAs(out, i, FloatToHalf(low ? -kLargestHalf : high ? kLargestHalf : x));
    return;
  }
  const double v = (static_cast<double>(x) - s.lo) * s.top / s.width;
  *below += v >= -0.5 ? 0 : 1;  // NaN, too
  *above += v > s.top + 0.5 ? 1 : 0;
  Store(s.out, out, i, {v});
}

}  // namespace octavo::inline gpu::math
