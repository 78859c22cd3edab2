#pragma once

#include "gpu/array/motion_contrast.h"
#include "server/model/status_types.h"

namespace octavo::processing {

/// How the voxels of a volume stand for values.
math::StoredScale ScaleOf(const model::VolumeStatus& volume);
/// What to show of motion contrast as white: 1, or for speckle variance a hundredth of the square
/// of the brightest amplitude.
double ContrastDisplayHi(MotionContrast kind, const model::VolumeStatus& volume);

}  // namespace octavo::processing
