#pragma once

#include <cstdint>

#include "gpu/device/dtype.h"
#include "gpu/math/raw.h"
#include "gpu/spectral/spectral.h"

// What the spectral chain can give, from its configuration alone: no data is looked at.
namespace octavo::inline gpu {

/// The numbers that a raw sample can be.
struct SampleRange {
  double lo = 0, hi = 0;
};

/// Bits of a sample as far as its container tells them; 0 for F32, which has no largest number
/// worth the name.
int64_t ContainerBits(DType raw_type, math::Packing packing);

/// The range of samples of `bits` bits: 0 ... 2^bits - 1, of I16 and F32 also the negative numbers.
/// `bits` 0: those of the container, -1 ... 1 for F32.
SampleRange RangeOf(DType raw_type, math::Packing packing, int64_t bits);

/// An upper bound of |z| for any records of samples in `range`, rounding errors of the chain
/// included. Tight within the interpolation's overshoot: a constant spectrum without background and
/// interpolation reaches it at depth 0.
double LargestMagnitude(const SpectralConfig& config, SampleRange range);

/// Root mean square of |z| where every raw sample is off by noise of the root mean square
/// `sample_noise`, independent of the others.
double NoiseMagnitude(const SpectralConfig& config, double sample_noise);

/// The smallest and the largest value in dB that the chain can give: from the floor of
/// math::kPowerFloor, -300 dB.
struct ValueSpan {
  double lo = 0, hi = 0;
};
ValueSpan DbSpan(const SpectralConfig& config, SampleRange range);

}  // namespace octavo::inline gpu
