#pragma once

#include <cstdint>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"
#include "gpu/spectral/spectral.h"

// The range of values that the spectral chain can produce, computed from its configuration alone,
// without any data.
namespace octavo::inline gpu {

/// The range of values that a raw sample can have.
struct SampleRange {
  double lo = 0, hi = 0;
};

/// Bits of a sample, as far as its container determines them; 0 for F32, whose largest number is no
/// useful bound.
int64_t ContainerBits(DType raw_type, math::Packing packing);

/// The range of samples of `bits` bits: 0 ... 2^bits - 1, and for I16 and F32 also the negative
/// numbers. `bits` 0: the bits of the container, or -1 ... 1 for F32.
SampleRange RangeOf(DType raw_type, math::Packing packing, int64_t bits);

/// An upper bound of |z| for any records of samples in `range`, rounding errors of the chain
/// included. Tight within the interpolation's overshoot: a constant spectrum without background and
/// interpolation reaches it at depth 0.
double LargestMagnitude(const SpectralConfig& config, SampleRange range);

/// Root mean square of |z| if every raw sample has independent noise of root mean square
/// `sample_noise`.
double NoiseMagnitude(const SpectralConfig& config, double sample_noise);

/// The smallest and the largest value in dB that the chain can produce. The smallest is the floor
/// of math::kPowerFloor, -300 dB.
struct ValueSpan {
  double lo = 0, hi = 0;
};
ValueSpan DbSpan(const SpectralConfig& config, SampleRange range);

}  // namespace octavo::inline gpu
