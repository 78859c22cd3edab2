#include "gpu/device/cuda/cuda_context.h"

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::inline gpu::cuda {

absl::StatusOr<CudaContext> FindCudaContext(Device& device, const OperatorFamily& family) {
  OCTAVO_RETURN_IF_ERROR(CheckBackend(device, "cuda", family));
  const auto* const source = dynamic_cast<const CudaContextSource*>(&device);
  if (source != nullptr) return source->cuda_context();
  return absl::InvalidArgumentError(
      absl::StrCat("operators of the family ", family.name, " cannot be made for devices/",
                   device.info().index, ": it stands for a GPU and is none"));
}

}  // namespace octavo::inline gpu::cuda
