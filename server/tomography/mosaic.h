#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/tomography_spec.h"
#include "server/source/push_projections.h"
#include "server/storage/projections/projection_input.h"
#include "server/tomography/joined_detector.h"
#include "server/tomography/mosaic_input.h"

namespace octavo::tomography {

/// The tiles of a mosaic, opened and placed. Immutable.
class Mosaic {
 public:
  /// Opens all tiles below `roots`, checks that they fit together, and finds where they lie, if the
  /// request asks for it; so the size of the joined detector is known when the job is submitted.
  /// Errors name fields below "tomography.mosaic.".
  static absl::StatusOr<std::shared_ptr<const Mosaic>> Open(
      const model::TomographySpec& spec, const model::ProjectionMosaicSpec& mosaic,
      const std::vector<std::string>& roots);

  /// Of the joined detector.
  const storage::ProjectionInfo& info() const { return info_; }
  /// An input of the joined projections. With `memory`, the chunks of each tile's file are read
  /// once (CacheChunks); `notes` then says of which this is not so.
  std::shared_ptr<MosaicInput> MakeInput(source::ProjectionMemory* memory,
                                         std::vector<std::string>* notes) const;
  /// Host memory that the fields of an input take.
  int64_t field_bytes() const;
  const std::vector<model::MosaicTileReport>& tiles() const { return reports_; }
  /// Where the tiles lie, and how that was found.
  const std::vector<std::string>& log() const { return log_; }
  /// What may be wrong with the tiles.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status OpenTiles(const model::TomographySpec& spec,
                         const model::ProjectionMosaicSpec& mosaic,
                         const std::vector<std::string>& roots);
  std::vector<TilePlace> GivenPlaces(const model::ProjectionMosaicSpec& mosaic) const;
  absl::Status Place(const model::ProjectionMosaicSpec& mosaic, std::vector<TilePlace> places);
  absl::Status LookAtValues(const model::TomographySpec& spec);

  std::vector<std::shared_ptr<storage::ProjectionInput>> tiles_;
  TileFields fields_;
  JoinedDetector joined_;
  storage::ProjectionInfo info_;
  std::vector<model::MosaicTileReport> reports_;
  std::vector<std::string> log_, warnings_;
};

}  // namespace octavo::tomography
