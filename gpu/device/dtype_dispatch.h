#pragma once

#include <cstdint>

#include "gpu/device/dtype.h"
#include "gpu/math/element.h"
#include "gpu/math/half.h"

// Dispatch from a DType at run time to the C++ type of an element, shared by all operator families
// of all backends.
namespace octavo::inline gpu {

/// Calls f with a value of the element type of stored intensities: u8, u16, else f32.
template <typename F>
void DispatchIntensityType(DType dtype, F f) {
  switch (dtype) {
    case DType::kU8: f(uint8_t{}); break;
    case DType::kU16: f(uint16_t{}); break;
    default: f(float{}); break;
  }
}

/// Calls f with a value of any element type that a volume can have: u8, i8, u16, f16, c64, else
/// f32.
template <typename F>
void DispatchVolumeType(DType dtype, F f) {
  switch (dtype) {
    case DType::kI8: f(int8_t{}); break;
    case DType::kF16: f(math::Half{}); break;
    case DType::kC64: f(math::Complex64{}); break;
    default: DispatchIntensityType(dtype, f); break;
  }
}

}  // namespace octavo::inline gpu
