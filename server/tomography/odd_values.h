#pragma once

#include <string>
#include <vector>

#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"

// Detects input values that contradict the request but would give a reconstruction without an
// error.
namespace octavo::tomography {

/// Reads a little of the projections and all means of the flat fields. Warnings, one sentence each:
/// one flat field among others that is brighter or darker; transmissions beside the object that are
/// not 1; counts taken as transmissions; line integrals whose logarithm would be taken once more,
/// or whose phase would be retrieved; an object in the columns that are taken for air; no finite
/// value. No warnings if the projections cannot be read, because the job will report that.
std::vector<std::string> FindOddValues(const model::TomographySpec& spec,
                                       storage::ProjectionInput& input);

}  // namespace octavo::tomography
