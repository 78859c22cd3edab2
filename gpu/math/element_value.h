#pragma once

#include <cstdint>

#include "gpu/math/element.h"
#include "gpu/math/half.h"
#include "gpu/math/host_device.h"

// The numbers that stored real elements mean, for kernels with an element type of their own.
namespace octavo::inline gpu::math {

/// An element's number as `Value`: exact for halves and for every type that `Value` holds.
template <typename Value, typename T>
OCTAVO_HOST_DEVICE inline Value ValueOf(T element) {
  return static_cast<Value>(element);
}
template <typename Value>
OCTAVO_HOST_DEVICE inline Value ValueOf(Half element) {
  return static_cast<Value>(HalfToFloat(element.bits));
}

/// The type in which filters and functions compute the elements `T`, and store their results: f64
/// for f64, else f32.
template <typename T>
struct ComputedIn {
  using type = float;
};
template <>
struct ComputedIn<double> {
  using type = double;
};

}  // namespace octavo::inline gpu::math
