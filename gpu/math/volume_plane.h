#pragma once

#include <cstdint>

#include "gpu/math/host_device.h"

// A plane of a volume [z, y, x] whose slices z are reconstructed each from its own sinogram, shared
// by all backends. A pixel of a plane lies at one point of one slice; there the projector's column
// (gpu/math/rotation.h) applies.
namespace octavo::inline gpu::math {

enum class PlaneAxis : int32_t { kZ, kY, kX };

/// The points of one row of a plane, from the middle of the slice in pixels: x to the right, y
/// downwards.
struct PlaneRow {
  float x = 0, y = 0;            // of column 0
  float step_x = 0, step_y = 0;  // from one column to the next, 0 or 1
  int32_t slice = 0;

  // Exact: multiples of one half, below 2^22.
  OCTAVO_HOST_DEVICE float X(int32_t column) const {
    return x + static_cast<float>(column) * step_x;
  }
  OCTAVO_HOST_DEVICE float Y(int32_t column) const {
    return y + static_cast<float>(column) * step_y;
  }
};

/// z = index: the image [y, x] of a slice. y = index: [z, x]. x = index: [z, y].
struct VolumePlane {
  PlaneAxis axis = PlaneAxis::kZ;
  int32_t index = 0;
  int32_t size = 0;    // rows and columns of a slice
  int32_t slices = 0;  // of the volume

  OCTAVO_HOST_DEVICE int32_t rows() const { return axis == PlaneAxis::kZ ? size : slices; }
  OCTAVO_HOST_DEVICE int32_t columns() const { return size; }
  OCTAVO_HOST_DEVICE PlaneRow Row(int32_t row) const {
    const float middle = 0.5f * static_cast<float>(size - 1),
                at = static_cast<float>(index) - middle;
    if (axis == PlaneAxis::kZ) return {-middle, static_cast<float>(row) - middle, 1, 0, index};
    if (axis == PlaneAxis::kY) return {-middle, at, 1, 0, row};
    return {at, -middle, 0, 1, row};
  }
};

}  // namespace octavo::inline gpu::math
