#pragma once

#include <cstdint>

#include "gpu/device/scalar.h"
#include "gpu/math/element.h"

// Dispatch from a Scalar at run time to the C++ type of an element.
namespace octavo::inline gpu {

/// Calls f with a value of the element type of real numbers. Complex types are the caller's fault:
/// they count as f32.
template <typename F>
void DispatchReal(Scalar scalar, F f) {
  switch (scalar) {
    case Scalar::kU8: return f(uint8_t{});
    case Scalar::kI8: return f(int8_t{});
    case Scalar::kU16: return f(uint16_t{});
    case Scalar::kI16: return f(int16_t{});
    case Scalar::kF16: return f(math::Half{});
    case Scalar::kF64: return f(double{});
    case Scalar::kU32: return f(uint32_t{});
    case Scalar::kI32: return f(int32_t{});
    case Scalar::kU64: return f(uint64_t{});
    case Scalar::kI64: return f(int64_t{});
    default: return f(float{});
  }
}

}  // namespace octavo::inline gpu
