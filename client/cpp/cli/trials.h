#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/v1/job.pb.h"
#include "octavo/v1/volume.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// The spread of the edges of a slice [rows, columns]: the ratio of the mean of its gradient's
/// length to the root of its mean square, within the inscribed circle, after averaging 5 x 5 pixels
/// against noise. The smallest value is the sharpest; 0 to 1, and 1 for an empty slice. The
/// artefacts of a wrong axis (arcs, doubled edges) increase the spread; sums of squares would not
/// work, because a shift of the axis does not change them.
double EdgeSpread(const std::vector<float>& values, int64_t rows, int64_t columns);

/// The trial slices of a job with try_centers: all in one picture, each with its axis and score,
/// and the numbers on standard output. Returns whether everything succeeded.
bool ShowTrials(Session& session, const v1::Job& job, const v1::Volume& volume,
                const std::string& png);

/// The values of a box of a held volume, packed in the order of its axes; of integers, the values
/// that its levels give them. Empty, after a message, if they cannot be read.
std::vector<float> ReadBox(Session& session, const v1::Volume& volume,
                           const std::array<int64_t, 3>& start,
                           const std::array<int64_t, 3>& count);
/// The same of slice `slice` [y, x] of a held volume [slice, y, x].
std::vector<float> ReadSlice(Session& session, const v1::Volume& volume, int64_t slice);

}  // namespace octavo::cli
