#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/storage/projections/projection_input.h"
#include "server/tomography/joined_detector.h"

namespace octavo::tomography {

struct OverlapFindings {
  std::vector<std::string> log, warnings;
};

/// Whether the tiles of a mosaic show the same where they overlap at these places: tells of pairs
/// that differ in what they show, or in how bright they are. `divide`: tiles are counts, with flat
/// fields. Reads a bounded part of some overlaps; one that cannot be read is told in the log, since
/// the run may not need it. Says nothing of overlaps with little structure: what differs must do so
/// much more than neighbouring projections of one tile, which differ by all that noise is.
OverlapFindings CheckOverlaps(const std::vector<std::shared_ptr<storage::ProjectionInput>>& tiles,
                              const std::vector<TilePlace>& places, bool divide);

}  // namespace octavo::tomography
