#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/tomography_spec.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/joined_detector.h"

namespace octavo::tomography {

/// Where the tiles of a mosaic lie by what they show.
struct FoundPlaces {
  std::vector<TilePlace> places;
  std::vector<model::MosaicTileReport> tiles;  // without the places
  std::vector<std::string> log, warnings;
};

/// Corrects the given places, by up to `search` columns and rows between two neighbours: from the
/// correlation of their line integrals where they overlap, in up to nine projections. `divide`:
/// tiles are counts, with flat fields. Reads a bounded part of each overlap. Errors of reading.
absl::StatusOr<FoundPlaces> FindPlaces(
    const std::vector<std::shared_ptr<storage::ProjectionInput>>& tiles,
    const std::vector<TilePlace>& given, int64_t search, bool divide);

}  // namespace octavo::tomography
