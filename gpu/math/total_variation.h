#pragma once

#include <cmath>

#include "gpu/math/host_device.h"
#include "gpu/math/rotation.h"

// The elements of the total-variation iterations, shared by all backends (gpu/tomography: Tv of
// reconstruct.cc has the method).
namespace octavo::inline gpu::math {

/// The dual variable of a ray after a step: `bar` is A x̄ there, `step` 1 / the sum of its row of A.
OCTAVO_HOST_DEVICE inline float DualOfRay(float dual, float bar, float measured, float step) {
  return (dual + step * (bar - measured)) / (1.0f + step);
}

/// The differences of a pixel to its right and to its lower neighbour.
struct Slope {
  float right = 0, down = 0;
};

/// The dual variable of a pixel after a step along the slope of x̄, kept within the disc of radius
/// `limit`.
OCTAVO_HOST_DEVICE inline Slope DualOfSlope(Slope dual, Slope slope, float step, float limit) {
  dual.right = fmaf(step, slope.right, dual.right);
  dual.down = fmaf(step, slope.down, dual.down);
  const float length = sqrtf(fmaf(dual.right, dual.right, dual.down * dual.down));
  if (length > limit) {
    const float shorter = limit / length;
    dual.right *= shorter;
    dual.down *= shorter;
  }
  return dual;
}

OCTAVO_HOST_DEVICE inline float LengthOf(Slope slope) {
  return sqrtf(fmaf(slope.right, slope.right, slope.down * slope.down));
}

/// By how much limit |slope| exceeds what the dual variable accounts for, dual · slope: 0 or more,
/// but for rounding, as |dual| <= limit. This is the pixel's part of the primal-dual gap (Chambolle
/// and Pock 2011, section 6.2, for the term of the total variation), and 0 at the minimum.
OCTAVO_HOST_DEVICE inline float VariationGap(Slope dual, Slope slope, float limit) {
  return limit * LengthOf(slope) - fmaf(dual.right, slope.right, dual.down * slope.down);
}

/// The pixel after a step against `back` + strength × `turned`, where `back` is Aᵀ of the rays'
/// duals, `turned` ∇ᵀ of the slopes' duals, and `weight` 1 / the sum of the pixel's column of A.
/// The step is weight / (1 + 4 strength weight), times `factor`.
OCTAVO_HOST_DEVICE inline float PrimalStep(float x, float back, float turned, float weight,
                                           float strength, float factor) {
  const float step = factor * weight / fmaf(4.0f * strength, weight, 1.0f);
  return x - step * fmaf(strength, turned, back);
}

}  // namespace octavo::inline gpu::math
