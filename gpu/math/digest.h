#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

namespace octavo::inline gpu::math {

/// One term of the sum64 digest (gpu/device/digest.h). The mixer is splitmix64's finaliser (Steele,
/// Lea, Flood 2014), and the position enters through an odd multiple of the golden ratio, so that
/// swapped words change the sum.
OCTAVO_HOST_DEVICE inline uint64_t DigestWord(uint64_t word, uint64_t index) {
  uint64_t x = word + (index + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// The index, within the whole, of word `i` of a part that lies in runs within it
/// (gpu/device/digest.h, DigestPlace). All numbers are in words.
OCTAVO_HOST_DEVICE inline uint64_t DigestIndex(int64_t i, int64_t first, int64_t run,
                                               int64_t stride) {
  return static_cast<uint64_t>(run == 0 ? first + i : first + i / run * stride + i % run);
}

}  // namespace octavo::inline gpu::math
