#include "gpu/spectral/spectral_span.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/math/spectral.h"

namespace octavo::inline gpu {
namespace {

constexpr double kRounding =
    1.001;  // allowance for float32: the error of the chain stays far below 0.1 % of the bound

// The largest sum of |weights| of an interpolation over all positions.
double Overshoot(math::Interpolation kind) {
  switch (kind) {
    case math::Interpolation::kNone:
    case math::Interpolation::kLinear: return 1;
    case math::Interpolation::kCubic:
      return 1.25;  // halfway between two samples: 1/16 9/16 9/16 1/16
    case math::Interpolation::kLanczos: return 1.72;  // also halfway: 1.715
  }
  return 1;
}

// The largest |x - background|.
double LargestDifference(const SpectralConfig& c, SampleRange range) {
  switch (c.background) {
    case math::Background::kNone: return std::max(std::abs(range.lo), std::abs(range.hi));
    case math::Background::kRolling:
    case math::Background::kBscan:
      return std::max({range.hi - range.lo, std::abs(range.lo),
                       std::abs(range.hi)});  // the background is a mean of such samples
    case math::Background::kStatic: break;
  }
  double most = 0;
  for (const float b : c.background_spectrum) {
    most = std::max({most, std::abs(range.hi - static_cast<double>(b)),
                     std::abs(range.lo - static_cast<double>(b))});
  }
  return most;
}

// If the fixed pattern is subtracted, the bound doubles: its mean and an A-scan may point in
// opposite directions.
double PatternFactor(const SpectralConfig& c) {
  return c.fixed_pattern == math::FixedPattern::kNone ? 1 : 2;
}

}  // namespace

int64_t ContainerBits(DType raw_type, math::Packing packing) {
  if (packing != math::Packing::kNone) return 12;
  return raw_type == DType::kF32 ? 0 : 8 * SizeOf(raw_type);
}

SampleRange RangeOf(DType raw_type, math::Packing packing, int64_t bits) {
  const bool is_signed = raw_type == DType::kI16 || raw_type == DType::kF32;
  if (bits == 0) bits = ContainerBits(raw_type, packing);
  if (raw_type == DType::kI16 && bits >= 16) return {-32768, 32767};
  const double hi = bits == 0 ? 1 : std::exp2(static_cast<double>(bits)) - 1;
  return {is_signed ? -hi : 0, hi};
}

double LargestMagnitude(const SpectralConfig& c, SampleRange range) {
  double sum = 0;
  for (const float w : c.window) sum += std::abs(static_cast<double>(w));
  return sum / static_cast<double>(c.fft_length) * Overshoot(c.interpolation) *
         LargestDifference(c, range) * PatternFactor(c) * kRounding;
}

double NoiseMagnitude(const SpectralConfig& c, double sample_noise) {
  double sum = 0;
  for (const float w : c.window) sum += static_cast<double>(w) * static_cast<double>(w);
  return std::sqrt(sum / static_cast<double>(c.record_average)) /
         static_cast<double>(c.fft_length) * sample_noise;
}

ValueSpan DbSpan(const SpectralConfig& c, SampleRange range) {
  // At most the largest power that a float32 can hold, and large enough to leave room for levels.
  const double most = 10 * std::log10(static_cast<double>(std::numeric_limits<float>::max()));
  const double lo = std::round(10 * std::log10(static_cast<double>(math::kPowerFloor)));
  const double bound = LargestMagnitude(c, range);
  return {lo, std::clamp(bound > 0 ? std::ceil(20 * std::log10(bound)) : lo + 1, lo + 1,
                         std::ceil(most))};
}

}  // namespace octavo::inline gpu
