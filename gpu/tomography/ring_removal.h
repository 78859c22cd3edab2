#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/tomography/preprocess.h"

namespace octavo::inline gpu {

/// InvalidArgument names "rings[i].field".
absl::Status CheckRings(const std::vector<RingRemoval>& rings, int64_t angles, int64_t detectors);

/// Runs ring removals one after the other, some slices at a time.
class RingChain {
 public:
  virtual ~RingChain() = default;
  /// `rings`: valid (CheckRings) and not empty. ResourceExhausted if the device has too little
  /// memory.
  static absl::StatusOr<std::unique_ptr<RingChain>> Create(const std::vector<RingRemoval>& rings,
                                                           const PreparedShape& shape,
                                                           Device& device);
  static absl::StatusOr<int64_t> DeviceBytes(const std::vector<RingRemoval>& rings,
                                             const PreparedShape& shape, Device& device);
  /// Works in place on device f32 [slice, angle, detector] of the shape; the values must be finite.
  /// It only enqueues, but synchronises before it calls `goes_on`.
  virtual absl::Status Run(StreamRef stream, DeviceSpan<float> sinograms,
                           const CancelCheck& goes_on) = 0;
};

}  // namespace octavo::inline gpu
