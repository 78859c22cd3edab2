#include "gpu/device/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::inline gpu::cuda {

absl::Status DeviceHealth::Lost() {
  MutexLock lock(mutex);
  return WithInfo(absl::UnavailableError(reason),
                  {.reason = Reason::kDeviceLost, .field = "", .numbers = {}});
}

absl::Status ToStatus(cudaError_t error, const char* call, const char* file, int line,
                      DeviceHealth* health) {
  if (error == cudaSuccess)
    return health == nullptr || health->sticky == cudaSuccess ? absl::OkStatus() : health->Lost();
  const std::string text = absl::StrCat(cudaGetErrorName(error), " (", cudaGetErrorString(error),
                                        ") from ", call, " at ", file, ":", line);
  switch (error) {
    case cudaErrorMemoryAllocation:
      (void)cudaGetLastError();  // not sticky: clear it
      return WithInfo(absl::ResourceExhaustedError(text),
                      {.reason = Reason::kOutOfMemory, .field = "", .numbers = {}});
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError: return absl::FailedPreconditionError(text);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration: (void)cudaGetLastError(); return absl::InternalError(text);
    default:
      if (health == nullptr) return absl::InternalError(text);
      health->Lose(error, text);
      return health->Lost();
  }
}

absl::Status ToStatus(cufftResult result, const char* call, const char* file, int line,
                      DeviceHealth*) {
  if (result == CUFFT_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat("cuFFT error ", static_cast<int>(result), " from ", call,
                                        " at ", file, ":", line);
  if (result == CUFFT_ALLOC_FAILED) return absl::ResourceExhaustedError(text);
  return absl::InternalError(text);
}

}  // namespace octavo::inline gpu::cuda
