#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

namespace octavo::inline gpu {

/// The numbers that belong to result k: two kept axes (k = k0 keep[1] + k1) and two reduced axes;
/// strides in numbers.
struct AxesSpec {
  int64_t keep[2] = {1, 1}, keep_stride[2] = {0, 0}, run[2] = {1, 1}, run_stride[2] = {0, 0},
          offset = 0;
  OCTAVO_HOST_DEVICE int64_t results() const { return keep[0] * keep[1]; }
  OCTAVO_HOST_DEVICE int64_t length() const { return run[0] * run[1]; }
  OCTAVO_HOST_DEVICE int64_t First(int64_t k) const {
    return offset + k / keep[1] * keep_stride[0] + k % keep[1] * keep_stride[1];
  }
};

}  // namespace octavo::inline gpu
