#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// Index arithmetic of tomography, shared by all backends.
namespace octavo::inline gpu::math {

/// The signed frequency at index i of a discrete Fourier transform of length n: 0 … n/2, then the
/// negative frequencies.
OCTAVO_HOST_DEVICE inline int64_t SignedFrequency(int64_t i, int64_t n) {
  return 2 * i <= n ? i : i - n;
}

/// The position of images of n × n pixels in the middle of a grid of size × size. Rows and columns
/// are those of the grid.
struct GridMiddle {
  int64_t n, border;
  OCTAVO_HOST_DEVICE GridMiddle(int64_t size, int64_t width)
      : n(width), border((size - width) / 2) {}
  OCTAVO_HOST_DEVICE bool Contains(int64_t row, int64_t column) const {
    // Without short-circuits: branches would cost the CUDA kernel registers.
    return (row >= border) & (row < border + n) & (column >= border) & (column < border + n);
  }
  /// The pixel's index in packed images [image, n, n].
  OCTAVO_HOST_DEVICE int64_t At(int64_t image, int64_t row, int64_t column) const {
    return (image * n + row - border) * n + column - border;
  }
};

/// Element `i` of a row of n numbers that is padded with zeros, `before` of them in front.
OCTAVO_HOST_DEVICE inline float PaddedValue(const float* row, int64_t n, int64_t before,
                                            int64_t i) {
  return i < before || i >= before + n ? 0.0f : row[i - before];
}

}  // namespace octavo::inline gpu::math
