#pragma once

#include <vector>

#include "gpu/tomography/preprocess.h"

namespace octavo::testing {

using Doubles = std::vector<double>;

/// The model of Preparer without phase retrieval, stitching and ring removal, in double precision.
/// `raw` [angle, row, column]; adds to `counts`.
Doubles PrepareModel(const PrepareConfig& c, Doubles raw, Doubles flats, Doubles darks,
                     PrepareCounts* counts);

}  // namespace octavo::testing
