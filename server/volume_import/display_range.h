#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "gpu/device/dtype.h"

namespace octavo::volume_import {

/// The stored values to show as black and white, found in one plane: 0.2 % of its voxels are
/// darker, 0.2 % brighter. Looks at about a million voxels, spread evenly; leaves out what is not
/// finite. Nothing for complex voxels, and for a plane without a finite one.
std::optional<std::pair<double, double>> FindDisplayRange(const void* plane, int64_t elements,
                                                          DType dtype);

}  // namespace octavo::volume_import
