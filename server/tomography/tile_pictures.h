#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "server/storage/projections/projection_input.h"
#include "server/tomography/tile_correlation.h"
#include "server/tomography/tile_pairs.h"

// What tiles of a mosaic show where they overlap.
namespace octavo::tomography {

/// Up to `most` of `count` projections, evenly spaced.
std::vector<int64_t> EvenlySpaced(int64_t count, int64_t most);

/// The transmissions of some projections in a part of a tile. `divide`: they are counts, if the
/// tile has flat fields, and are divided by the mean of up to eight; NaN where these are not
/// brighter than the dark ones.
absl::StatusOr<std::vector<Picture>> TransmissionsOf(storage::ProjectionInput& input,
                                                     const TilePart& part,
                                                     const std::vector<int64_t>& projections,
                                                     bool divide);

/// Line integrals of transmissions, up to a constant, `most` at most. What tells nothing gets the
/// value before it in its row: a step there would stand out more than all that is true.
void TakeLogarithm(Picture& picture, float most);

}  // namespace octavo::tomography
