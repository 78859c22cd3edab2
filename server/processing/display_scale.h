#pragma once

#include "gpu/array/motion_contrast.h"
#include "server/model/status_types.h"

namespace octavo::processing {

/// The scale from the voxels of a volume to values.
math::StoredScale ScaleOf(const model::VolumeStatus& volume);
/// The motion contrast to show as white: 1, or for speckle variance a hundredth of the square of
/// the brightest amplitude.
double ContrastDisplayHi(MotionContrast kind, const model::VolumeStatus& volume);

}  // namespace octavo::processing
