#pragma once

#include <cmath>

#include "gpu/math/hd.h"

namespace octavo::math {

/// Whether it is neither infinite nor NaN.
OCTAVO_HD inline bool IsFinite(float value) { return fabsf(value) <= 3.402823466e38f; }

}  // namespace octavo::math
