#pragma once

#include <vector>

#include "gpu/tomography/preprocess.h"

namespace octavo::testing {

using Doubles = std::vector<double>;

/// The model of Preparer without phase retrieval, stitching and ring removal, in double precision.
/// `raw` [angle, row, column]; adds to `counts`.
Doubles PrepareModel(const PrepareConfig& c, Doubles raw, Doubles flats, Doubles darks,
                     PrepareCounts* counts);

/// The same with a roll, whose `raw` and fields are finite.
Doubles PrepareTurnedModel(const PrepareConfig& c, const Doubles& raw, const Doubles& flats,
                           const Doubles& darks, PrepareCounts* counts);
/// Frames [frame, row, column] turned by `degrees` about their middle, by cubic convolution.
Doubles TurnModel(const Doubles& in, int64_t frames, int64_t rows, int64_t columns, double degrees);

}  // namespace octavo::testing
