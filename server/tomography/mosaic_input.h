#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/storage/projections/projection_input.h"
#include "server/tomography/joined_detector.h"
#include "server/tomography/mosaic_tile.h"

namespace octavo::tomography {

/// Projections of the joined detector of a mosaic, as transmissions (f32) without fields. Of each
/// tile, a read takes the rows and columns that it needs; reads run in parallel, each with some
/// megabytes of its own. Where tiles overlap, a pixel that tells nothing in one of them, because
/// it is not finite or unlit, is taken from the others alone.
class MosaicInput final : public storage::ProjectionInput {
 public:
  /// `info`: of the result, with the extents of `joined`. `tiles`: in the order of those of
  /// `joined`.
  MosaicInput(storage::ProjectionInfo info, JoinedDetector joined,
              std::vector<std::unique_ptr<MosaicTile>> tiles)
      : ProjectionInput(std::move(info)), joined_(std::move(joined)), tiles_(std::move(tiles)) {}

  const JoinedDetector& joined() const { return joined_; }
  const MosaicTile& tile(size_t i) const { return *tiles_[i]; }
  /// Pixels of tiles, among those that were read, that were divided by the floor.
  int64_t unlit() const;

 protected:
  absl::Status ReadInside(const storage::ProjectionBox& box, void* out) override;

 private:
  absl::Status ReadFrames(const storage::ProjectionBox& box, float* out);
  absl::Status AddTile(size_t index, const storage::ProjectionBox& box, float* out, float* weights);

  const JoinedDetector joined_;
  const std::vector<std::unique_ptr<MosaicTile>> tiles_;
};

}  // namespace octavo::tomography
