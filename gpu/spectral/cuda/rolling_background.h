#pragma once

// Private to this folder: the sums of records and means of sums of step 1
// (gpu/spectral/rolling_window.h has the rule).

#include <cuda_runtime.h>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

#include "gpu/device/buffer.h"
#include "gpu/device/cuda/cuda_status.h"
#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"

namespace octavo::inline gpu::cuda {

/// Sums pieces in parts over many blocks, and computes means of those sums. The order of each
/// summation depends only on the number of records. One stream at a time.
class RollingBackground {
 public:
  static int64_t DeviceBytes(const SpectralConfig& config);
  /// Allocates; `config` has a rolling background.
  static absl::StatusOr<std::unique_ptr<RollingBackground>> Create(
      const SpectralConfig& config, Device* device, std::shared_ptr<DeviceHealth> health);
  /// As SpectralPlan::SumRecords.
  absl::Status Sum(cudaStream_t stream, const void* raw, std::span<const SumPiece> pieces,
                   const SumRing& ring);
  /// As SpectralPlan::MakeBackgrounds; `backgrounds`: device memory [row, S].
  absl::Status Mean(cudaStream_t stream, std::span<const MeanOfSums> means, const SumRing& ring,
                    float* backgrounds);

 private:
  RollingBackground(const SpectralConfig& config, std::shared_ptr<DeviceHealth> health)
      : config_(config), health_(std::move(health)) {}

  const SpectralConfig config_;
  const std::shared_ptr<DeviceHealth> health_;
  DeviceBuffer partials_, finite_;
  int64_t part_begin_[kMostSumPieces + 1] = {};  // of the pieces that were summed last
};

/// Enqueues writing, for each record of `runs` in turn, whether all its numbers are finite; kF32.
void LaunchFinite(cudaStream_t stream, const SpectralConfig& config, const void* raw,
                  const RecordRuns& runs, uint8_t* finite);
/// Enqueues adding to `count` the number of records that are not finite.
void LaunchCountNonFinite(cudaStream_t stream, const SpectralConfig& config, const void* raw,
                          int64_t records, uint64_t* count);

}  // namespace octavo::inline gpu::cuda
