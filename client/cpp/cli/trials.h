#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/v1/job.pb.h"
#include "octavo/v1/volume.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// How spread the edges of a slice [rows, columns] are: the mean of its gradient's length against
/// the root of its mean square, over the circle within, of means over 5 x 5 pixels, for the noise.
/// The least is the sharpest; 0 to 1, and 1 where there is nothing. What is wrong with a slice
/// whose axis is wrong (arcs, doubled edges) spreads them; sums of squares could not tell, since a
/// shift of the axis does not change them.
double EdgeSpread(const std::vector<float>& values, int64_t rows, int64_t columns);

/// The trial slices of a job with try_centers: all in one picture, each with its axis and score,
/// and the numbers on standard output. Whether all of it went well.
bool ShowTrials(Session& session, const v1::Job& job, const v1::Volume& volume,
                const std::string& png);

/// The f32 values of slice `slice` [y, x] of a held volume [slice, y, x]; empty, and told, if they
/// cannot be read.
std::vector<float> ReadSlice(Session& session, const v1::Volume& volume, int64_t slice);

}  // namespace octavo::cli
