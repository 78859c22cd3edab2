#pragma once

// Private to this folder: the whole chain of one A-scan in one launch, for the lengths and options
// that are used most.

#include <cuda_runtime.h>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/device/cuda/cuda_status.h"
#include "gpu/device/device.h"
#include "gpu/spectral/spectral.h"

namespace octavo::inline gpu::cuda {

/// Steps 1 to 7 in one kernel: a group of threads takes two A-scans from raw samples in shared
/// memory to placed output, with 16 or 32 points a thread and one exchange through shared memory
/// between the two halves of the transform (fused_kernel.cuh).
class FusedChain {
 public:
  /// "" if the fused kernel supports `config`, else the unsupported option in words.
  static std::string WhyNot(const SpectralConfig& config);
  /// Describes in words how the fused kernel runs a config that it supports.
  static std::string Describe(const SpectralConfig& config);
  /// An upper bound of the bytes that Create allocates.
  static int64_t DeviceBytes(const SpectralConfig& config);
  /// `background`: device memory [S] (kRolling: [RollingRows, S]) or null; read by Refresh.
  /// Enqueues on `stream` and waits for it.
  static absl::StatusOr<std::unique_ptr<FusedChain>> Create(const SpectralConfig& config,
                                                            Device* device,
                                                            std::shared_ptr<DeviceHealth> health,
                                                            const float* background,
                                                            cudaStream_t stream);
  virtual ~FusedChain() = default;
  /// Enqueues taking over the current contents of those rows of `background`.
  virtual absl::Status Refresh(cudaStream_t stream, std::span<const MeanOfSums> rows) = 0;
  virtual absl::Status Process(cudaStream_t stream, const void* raw, int64_t records,
                               const RecordPlacement& placement, const SpectralTarget& target) = 0;
};

}  // namespace octavo::inline gpu::cuda
