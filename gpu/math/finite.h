#pragma once

#include <cmath>

#include "gpu/math/host_device.h"

namespace octavo::inline gpu::math {

/// Whether `value` is neither infinite nor NaN.
OCTAVO_HOST_DEVICE inline bool IsFinite(float value) { return fabsf(value) <= 3.402823466e38f; }

}  // namespace octavo::inline gpu::math
