#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "server/pattern/cartesian.h"
#include "server/pattern/pattern.h"

// Which A-scans of a derived volume are missing, from those that its source lacks. Pure arithmetic.
namespace octavo::derive {

using AscanRanges = std::vector<std::pair<int64_t, int64_t>>;  // first, count; sorted

/// The stored row of each repeat of each B-scan: [bscans, repeats].
std::vector<int32_t> RepeatOrder(const pattern::Pattern& pattern);
/// A-scans of which a repeat is missing. `order`: of RepeatOrder; `columns`: A-scans in a row.
AscanRanges MissingOverRepeats(const pattern::Pattern& pattern, const std::vector<int32_t>& order,
                               int64_t columns, const AscanRanges& missing);
/// Pairs of neighbours with a missing member: `columns` pairs in each of `rows` B-scans.
AscanRanges MissingOverAscans(int64_t rows, int64_t columns, const AscanRanges& missing);
/// Points of the grid that would be covered if nothing were missing. `taps`: what is left.
AscanRanges MissingOfGrid(const pattern::Pattern& pattern, const pattern::CartesianGrid& grid,
                          const pattern::CartesianTaps& taps);

}  // namespace octavo::derive
