#pragma once

#include "absl/status/statusor.h"

#include "gpu/device/operators.h"

namespace octavo::inline gpu::cuda {

/// CUDA's twin of every operator family, for `device`, which must outlive them.
absl::StatusOr<OperatorSet> MakeCudaOperators(Device& device);

}  // namespace octavo::inline gpu::cuda
