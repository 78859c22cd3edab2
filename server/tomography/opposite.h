#pragma once

#include <optional>
#include <vector>

#include "server/model/tomography_spec.h"

namespace octavo::tomography {

/// The two of the projections `used` (resolved) whose directions are nearest to half a turn apart,
/// within 10 degrees; of several that are as near, those of the first projection. Nothing if there
/// are none. `angles_rad`: of all projections of the input.
std::optional<model::OppositeProjections> OppositeOf(const model::IndexRange& used,
                                                     const std::vector<double>& angles_rad);

}  // namespace octavo::tomography
