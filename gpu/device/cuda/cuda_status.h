#pragma once

#include <atomic>
#include <cuda_runtime.h>
#include <cufft.h>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "gpu/base/mutex.h"

namespace octavo::inline gpu::cuda {

/// Whether a device may still be used. All objects made on the device share it. A sticky error
/// makes the device unusable.
struct DeviceHealth {
  /// Keeps the first reason.
  void Lose(cudaError_t error, const std::string& why) {
    MutexLock lock(mutex);
    if (sticky != cudaSuccess) return;
    reason = why;
    sticky = error;
  }
  absl::Status Lost();  // Unavailable (DEVICE_LOST), with the reason

  std::atomic<cudaError_t> sticky{cudaSuccess};
  Mutex mutex;
  std::string reason ABSL_GUARDED_BY(mutex);
};

/// Status of a CUDA call, with its text and place. Sticky errors (illegal address and the like)
/// also mark `health`. On a lost device every call fails.
absl::Status ToStatus(cudaError_t error, const char* call, const char* file, int line,
                      DeviceHealth* health);
absl::Status ToStatus(cufftResult result, const char* call, const char* file, int line,
                      DeviceHealth* health);

}  // namespace octavo::inline gpu::cuda

// Returns from the enclosing function if the CUDA or cuFFT call fails.
#define OCTAVO_CUDA(health, call)                                                  \
  do {                                                                             \
    if (absl::Status octavo_cuda_status_ =                                         \
            ::octavo::cuda::ToStatus((call), #call, __FILE__, __LINE__, (health)); \
        !octavo_cuda_status_.ok())                                                 \
      return octavo_cuda_status_;                                                  \
  } while (false)
