#include "server/tomography/mosaic.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/model/status_types.h"
#include "server/tomography/mosaic_search.h"
#include "server/tomography/odd_values.h"
#include "server/tomography/overlap_check.h"
#include "server/tomography/plausible.h"
#include "server/tomography/projection_cache.h"
#include "server/tomography/projection_file.h"

namespace octavo::tomography {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kMostAngle = 1e-4;        // rad, by which a projection of two tiles may differ
constexpr double kMostPixelChange = 0.01;  // of the size of a pixel
constexpr int64_t kMostColumns = 32768, kMostRows = 65535;  // PrepareConfig
constexpr size_t kMostLookedAt = 8;                         // tiles whose values are looked at
constexpr double kLeastStep = 1;  // columns or rows, by which two tiles are moved to each other

std::string FieldOf(size_t tile, const char* below) {
  return absl::StrCat("tomography.mosaic.tiles[", tile, "]", below);
}

/// What is wrong with a tile beside the first one, or by itself.
absl::Status CheckTile(const model::TomographySpec& spec, size_t index,
                       const storage::ProjectionInfo& tile, const storage::ProjectionInfo& first) {
  const auto refused = [&](const char* below, const std::string& why) {
    return InvalidField(FieldOf(index, below), why);
  };
  if (tile.projections != first.projections)
    return refused(".file.path", absl::StrCat("has ", tile.projections, " projections; allowed ",
                                              first.projections, ", as tiles[0]"));
  if (tile.dtype != first.dtype)
    return refused(".file.path",
                   absl::StrCat("has pixels of type ", Info(tile.dtype).name, "; allowed ",
                                Info(first.dtype).name, ", as tiles[0]"));
  for (size_t i = 0; i < tile.angles_rad.size(); ++i) {
    const double off = std::remainder(tile.angles_rad[i] - first.angles_rad[i], 2 * kPi);
    if (std::abs(off) <= kMostAngle) continue;
    return refused(".file.angles",
                   absl::StrFormat("gives projection %d the angle %.6f rad, and tiles[0] %.6f; "
                                   "allowed are the same angles to within %g rad",
                                   i, tile.angles_rad[i], first.angles_rad[i], kMostAngle));
  }
  if (const auto quantity = model::QuantityNamed(tile.quantity);
      quantity == model::Quantity::kLineIntegral || quantity == model::Quantity::kAttenuation) {
    return refused(".file.path",
                   absl::StrCat("holds ", absl::StrReplaceAll(model::Name(*quantity), {{"_", " "}}),
                                " values; allowed are counts with flat fields, or transmissions"));
  }
  const model::PreparationSpec& p = spec.preparation;
  if (p.ignore_fields) return absl::OkStatus();
  if ((tile.flats > 0) != (first.flats > 0))
    return refused(".file.flats",
                   absl::StrCat("has ", tile.flats, " flat fields, and tiles[0] has ", first.flats,
                                "; allowed are flat fields in all tiles or in none"));
  if (tile.flats == 0 && p.config.minus_log && tile.dtype != DType::kF32)
    return refused(".file.flats",
                   absl::StrCat("has none, and the tile holds counts (", Info(tile.dtype).name,
                                "): transmissions need them. Allowed are flat fields in all tiles, "
                                "preparation.logarithm = false, or preparation.ignore_fields, "
                                "which takes the counts as transmissions"));
  return absl::OkStatus();
}

/// Pairs of tiles that cannot be meant: the same file, or the same place.
std::vector<std::string> OddPairs(const model::ProjectionMosaicSpec& mosaic,
                                  const std::vector<TilePlace>& places) {
  std::vector<std::string> odd;
  bool same_place = false;
  for (size_t j = 1; j < places.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      const storage::ProjectionOptions &one = mosaic.tiles[i].file.options,
                                       &other = mosaic.tiles[j].file.options;
      if (mosaic.tiles[i].file.path == mosaic.tiles[j].file.path &&
          one.projections == other.projections) {
        odd.push_back(absl::StrFormat(
            "Tiles %d and %d of the mosaic are the same file, '%s': tomography.mosaic.tiles[%d]"
            ".file.path should name another part of the scan.",
            i, j, mosaic.tiles[j].file.path, j));
      }
      const double columns = places[j].first_column - places[i].first_column,
                   rows = places[j].first_row - places[i].first_row;
      if (std::abs(columns) >= kLeastStep || std::abs(rows) >= kLeastStep || same_place) continue;
      same_place = true;  // a wrong unit makes it so of all
      odd.push_back(absl::StrFormat(
          "Tiles %d and %d of the mosaic lie at the same place: %g columns and %g rows apart. "
          "first_column and first_row of tomography.mosaic.tiles (--tile-columns, --tile-rows) are "
          "in pixels; divide millimetres by the size of a pixel.",
          i, j, columns, rows));
    }
  }
  return odd;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Mosaic>> Mosaic::Open(
    const model::TomographySpec& spec, const model::ProjectionMosaicSpec& mosaic,
    const std::vector<std::string>& roots) {
  auto opened = std::make_shared<Mosaic>();
  OCTAVO_RETURN_IF_ERROR(opened->OpenTiles(spec, mosaic, roots));
  // Holes are refused before frames are read.
  const std::vector<TilePlace> given = opened->GivenPlaces(mosaic);
  OCTAVO_RETURN_IF_ERROR(JoinTiles(given).status());
  OCTAVO_RETURN_IF_ERROR(opened->LookAtValues(spec));
  for (std::string& odd : OddPairs(mosaic, given)) opened->warnings_.push_back(std::move(odd));
  OCTAVO_RETURN_IF_ERROR(opened->Place(mosaic, given));
  return opened;
}

absl::Status Mosaic::OpenTiles(const model::TomographySpec& spec,
                               const model::ProjectionMosaicSpec& mosaic,
                               const std::vector<std::string>& roots) {
  fields_ = {.divide = !spec.preparation.ignore_fields,
             .flat_average = spec.preparation.config.flat_average,
             .dark_average = spec.preparation.config.dark_average,
             .floor = static_cast<float>(spec.preparation.config.denominator_floor)};
  bool no_darks = false, has_axis = false;
  for (size_t i = 0; i < mosaic.tiles.size(); ++i) {
    const std::vector<double> usual =
        tiles_.empty() ? std::vector<double>() : tiles_[0]->info().angles_rad;
    OCTAVO_ASSIGN_OR_RETURN(auto tile,
                            OpenProjectionFile(mosaic.tiles[i].file, roots, FieldOf(i, ".file"),
                                               spec.angles_rad, usual));
    tiles_.push_back(std::move(tile));
    const storage::ProjectionInfo &info = tiles_[i]->info(), &first = tiles_[0]->info();
    OCTAVO_RETURN_IF_ERROR(CheckTile(spec, i, info, first));
    for (const std::string& note : info.notes)
      info_.notes.push_back(absl::StrCat("tile ", i, ": ", note));
    for (const std::string& doubt : info.doubts)
      info_.doubts.push_back(absl::StrCat("Tile ", i, " of the mosaic: ", doubt));
    no_darks |= fields_.divide && info.flats > 0 && info.darks == 0;
    has_axis |= info.axis_column.has_value();
    if (info_.pixel_size_um == 0) info_.pixel_size_um = info.pixel_size_um;
    if (info.pixel_size_um > 0 && std::abs(info.pixel_size_um - info_.pixel_size_um) >
                                      kMostPixelChange * info_.pixel_size_um) {
      info_.doubts.push_back(absl::StrFormat(
          "Tile %d of the mosaic has pixels of %g um, and one before it of %g um: they do not fit "
          "together.",
          i, info.pixel_size_um, info_.pixel_size_um));
    }
  }
  const storage::ProjectionInfo& first = tiles_[0]->info();
  if (no_darks)
    warnings_.emplace_back(
        "The mosaic has tiles with flat fields but no dark ones: what the detector counts without "
        "light is taken as 0 there.");
  if (fields_.divide && first.flats == 0 && spec.preparation.config.minus_log)
    warnings_.emplace_back(
        "The tiles of the mosaic have no flat fields: their values are taken as transmissions, 0 "
        "to 1, before the logarithm.");
  if (has_axis)
    info_.notes.emplace_back(
        "the axis that files of tiles give is not used: it is one of their own columns");
  info_.path = first.path;
  info_.format = "mosaic";
  info_.dtype = DType::kF32;
  info_.stored_type =
      absl::StrCat("transmissions of ", tiles_.size(), " tiles of ",
                   first.stored_type.empty() ? Info(first.dtype).name : first.stored_type.c_str());
  info_.projections = first.projections;
  info_.angles_rad = first.angles_rad;
  info_.angle_unit_assumed = first.angle_unit_assumed;
  return absl::OkStatus();
}

std::vector<TilePlace> Mosaic::GivenPlaces(const model::ProjectionMosaicSpec& mosaic) const {
  std::vector<TilePlace> places;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    places.push_back({.first_column = mosaic.tiles[i].first_column,
                      .first_row = mosaic.tiles[i].first_row,
                      .columns = tiles_[i]->info().columns,
                      .rows = tiles_[i]->info().rows});
  }
  return places;
}

absl::Status Mosaic::Place(const model::ProjectionMosaicSpec& mosaic,
                           std::vector<TilePlace> places) {
  reports_.resize(tiles_.size());
  if (mosaic.search > 0) {
    OCTAVO_ASSIGN_OR_RETURN(FoundPlaces found,
                            FindPlaces(tiles_, places, mosaic.search, fields_.divide));
    places = std::move(found.places);
    reports_ = std::move(found.tiles);
    log_ = std::move(found.log);
    warnings_.insert(warnings_.end(), found.warnings.begin(), found.warnings.end());
  }
  OCTAVO_ASSIGN_OR_RETURN(joined_, JoinTiles(places));
  for (const auto& [count, most, what] : {std::tuple(joined_.columns, kMostColumns, "columns"),
                                          std::tuple(joined_.rows, kMostRows, "rows")}) {
    if (count > most)
      return InvalidField("tomography.mosaic.tiles", absl::StrCat("make a detector of ", count, " ",
                                                                  what, "; allowed are ", most));
  }
  info_.columns = joined_.columns;
  info_.rows = joined_.rows;
  log_.push_back(
      absl::StrFormat("the joined detector has %d rows and %d columns", info_.rows, info_.columns));
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const JoinedTile& tile = joined_.tiles[i];
    reports_[i].first_column = tile.first_column;
    reports_[i].first_row = tile.first_row;
    log_.push_back(
        absl::StrFormat("tile %d, '%s', lies at column %.2f and row %.2f (%s), %d x %d "
                        "pixels",
                        i, mosaic.tiles[i].file.path, tile.first_column, tile.first_row,
                        reports_[i].found ? "found" : "given", tile.rows, tile.columns));
  }
  OverlapFindings findings = CheckOverlaps(tiles_, places, fields_.divide);
  std::move(findings.log.begin(), findings.log.end(), std::back_inserter(log_));
  std::move(findings.warnings.begin(), findings.warnings.end(), std::back_inserter(warnings_));
  return absl::OkStatus();
}

// Of many tiles some are looked at, evenly spaced: they come from one program, which makes the same
// mistake in all.
absl::Status Mosaic::LookAtValues(const model::TomographySpec& spec) {
  model::TomographySpec of_tile = spec;
  of_tile.rows = of_tile.columns = {};
  const size_t count = std::min(kMostLookedAt, tiles_.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t index = i * tiles_.size() / count;
    storage::ProjectionInput& tile = *tiles_[index];
    if (const auto exchanged = FindExchangedFields(of_tile, tile, FieldOf(index, ".file.flats")))
      return *exchanged;
    std::vector<std::string> odd = FindOddValues(of_tile, tile);
    if (auto none = FindNoTransmission(of_tile, tile)) odd.push_back(*std::move(none));
    for (const std::string& text : odd)
      warnings_.push_back(absl::StrCat("Tile ", index, " of the mosaic: ", text));
  }
  return absl::OkStatus();
}

std::shared_ptr<MosaicInput> Mosaic::MakeInput(source::ProjectionMemory* memory,
                                               std::vector<std::string>* notes) const {
  std::vector<std::unique_ptr<MosaicTile>> tiles;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    std::string note;
    tiles.push_back(std::make_unique<MosaicTile>(CacheChunks(tiles_[i], memory, &note), fields_));
    if (!note.empty() && notes != nullptr) notes->push_back(absl::StrCat("tile ", i, ": ", note));
  }
  return std::make_shared<MosaicInput>(info_, joined_, std::move(tiles));
}

int64_t Mosaic::field_bytes() const {
  int64_t sum = 0;
  for (const auto& tile : tiles_) sum += MosaicTile::FieldBytes(tile->info(), fields_);
  return sum;
}

}  // namespace octavo::tomography
