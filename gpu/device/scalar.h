#pragma once

#include "gpu/device/dtype.h"
#include "gpu/math/scalar.h"

namespace octavo::inline gpu {

inline constexpr Scalar ScalarOf(DType dtype) { return static_cast<Scalar>(dtype); }
/// Whether volumes can have voxels of this scalar type.
inline constexpr bool IsDType(Scalar scalar) { return static_cast<int>(scalar) <= 8; }

}  // namespace octavo::inline gpu
