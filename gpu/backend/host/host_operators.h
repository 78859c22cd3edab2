#pragma once

#include "absl/status/statusor.h"

#include "gpu/device/operators.h"

namespace octavo::inline gpu::host {

/// The host's twin of every operator family, for `device`, which must outlive them.
absl::StatusOr<OperatorSet> MakeHostOperators(Device& device);

}  // namespace octavo::inline gpu::host
