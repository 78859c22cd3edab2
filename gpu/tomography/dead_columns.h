#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"

// Detector columns that carry no information about the object: they are dead, hot, at the floor of
// the logarithm, or far from their neighbours at all angles. Such a column is its own mirror image
// about itself, so a search for the axis mistakes it for the axis.
namespace octavo::inline gpu {

/// Finds the dead columns of one sinogram [angle, detector] in host memory and returns them in
/// ascending order. A subset of the angles, in any order, is enough. A column is dead if it has one
/// value at four fifths of the angles while other columns change. It is also dead if, at four
/// fifths of the angles, it is farther from the median of its surroundings than columns change
/// during the scan. Weaker stripes do not count, nor does air, nor any region wider than a
/// twentieth of the columns. At the very ends, only columns with one value count.
std::vector<int64_t> FindDeadColumns(const std::vector<float>& sinogram, int64_t angles,
                                     int64_t detectors);

/// Replaces dead columns by linear interpolation between the columns beside them, in each sinogram
/// of [slice, angle, detector] in device memory. The result serves a search for the axis, not an
/// image. Returns the columns that are dead in any slice, ascending. Waits for the stream.
/// Cancelled if goes_on returned false.
absl::StatusOr<std::vector<int64_t>> MendDeadColumns(StreamRef stream, DeviceSpan<float> sinograms,
                                                     int64_t slices, int64_t angles,
                                                     int64_t detectors, Device& device,
                                                     const CancelCheck& goes_on = {});

}  // namespace octavo::inline gpu
