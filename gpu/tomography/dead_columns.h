#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"

// Columns of a detector that tell nothing of the object: dead, hot, at the floor of the logarithm,
// or far from their neighbours at all angles. One is its own mirror image about itself, so a search
// of the axis takes it for the axis.
namespace octavo::inline gpu {

/// Those of one sinogram [angle, detector] in host memory, ascending; a part of the angles, in any
/// order, is enough. Dead are columns with one value at four fifths of the angles among others that
/// change, and columns that are farther from the median of their surroundings, at four fifths of
/// the angles, than columns change during the scan. Stripes that are weaker than that do not count,
/// nor does air, nor what is wider than a twentieth; at the very ends only columns with one value
/// do.
std::vector<int64_t> FindDeadColumns(const std::vector<float>& sinogram, int64_t angles,
                                     int64_t detectors);

/// Replaces them by straight lines between the columns beside them, in each sinogram of [slice,
/// angle, detector] in device memory: for a search of the axis, not for a picture. Returns the
/// columns that are dead in any slice, ascending. Waits for the stream; Cancelled if goes_on said
/// no.
absl::StatusOr<std::vector<int64_t>> MendDeadColumns(StreamRef stream, float* sinograms,
                                                     int64_t slices, int64_t angles,
                                                     int64_t detectors, Device& device,
                                                     const CancelCheck& goes_on = {});

}  // namespace octavo::inline gpu
