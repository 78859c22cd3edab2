#pragma once

#include <cufft.h>

#include "absl/status/statusor.h"

namespace octavo::inline gpu::cuda {

/// cuFFT, loaded when the first plan is made: a program built with CUDA still starts on machines
/// without the library (280 MB).
struct CufftLibrary {
  decltype(&cufftCreate) Create;
  decltype(&cufftDestroy) Destroy;
  decltype(&cufftSetAutoAllocation) SetAutoAllocation;
  decltype(&cufftMakePlanMany64) MakePlanMany64;
  decltype(&cufftSetWorkArea) SetWorkArea;
  decltype(&cufftSetStream) SetStream;
  decltype(&cufftExecC2C) ExecC2C;
  decltype(&cufftExecR2C) ExecR2C;
};

/// FailedPrecondition if the library or one of its functions is missing. Loaded once; never
/// unloaded.
absl::StatusOr<const CufftLibrary*> LoadCufft();

}  // namespace octavo::inline gpu::cuda
