#pragma once

#include <vector>

#include "gpu/tomography/preprocess.h"

namespace octavo::testing {

using Doubles = std::vector<double>;

/// What Preparer makes without phase retrieval, stitching and rings, in double precision. `raw`
/// [angle, row, column]; adds to `counts`.
Doubles PrepareModel(const PrepareConfig& c, Doubles raw, Doubles flats, Doubles darks,
                     PrepareCounts* counts);

}  // namespace octavo::testing
