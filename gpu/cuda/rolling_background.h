#pragma once

// Private to gpu/cuda: step 1's mean of the last records.

#include <cuda_runtime.h>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/buffer.h"
#include "gpu/cuda/cuda_status.h"
#include "gpu/device.h"
#include "gpu/spectral.h"

namespace octavo::cuda {

/// The mean spectrum of the last M records in a ring that stays on the device. Each raw record is read once and kept once; those
/// that leave are read once more. One stream at a time.
class RollingBackground {
 public:
  static int64_t DeviceBytes(const SpectralConfig& config);
  /// Allocates; `config` has a rolling background. Enqueues on `stream`.
  static absl::StatusOr<std::unique_ptr<RollingBackground>> Create(const SpectralConfig& config, Device* device, std::shared_ptr<DeviceHealth> health,
                                                                   cudaStream_t stream);
  /// Enqueues: `background`, device memory [S], becomes the mean of the last M records of all that came, these `records` included.
  absl::Status Update(cudaStream_t stream, const void* raw, int64_t records, float* background);

 private:
  RollingBackground(const SpectralConfig& config, std::shared_ptr<DeviceHealth> health);

  const SpectralConfig config_;
  const std::shared_ptr<DeviceHealth> health_;
  const int64_t window_, most_parts_;  // raw records of the ring; parts of a block
  int64_t next_ = 0, seen_ = 0;        // raw records
  DeviceBuffer history_, sums_, partials_;
};

}  // namespace octavo::cuda
