#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

namespace octavo::tomography {

/// Opens a file or folder of projections below `roots`. `angles_rad`: those of the job, which
/// replace its own; empty = none. `usual_angles_rad`: for formats that have none of their own,
/// where the file gives none. Errors name fields below `field` ("tomography.file").
absl::StatusOr<std::shared_ptr<storage::ProjectionInput>> OpenProjectionFile(
    const model::ProjectionFileSpec& file, const std::vector<std::string>& roots,
    const std::string& field, const std::vector<double>& angles_rad,
    const std::vector<double>& usual_angles_rad = {});

}  // namespace octavo::tomography
