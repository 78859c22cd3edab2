#pragma once

// Private to the formats of growing_projections.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/storage/projections/growing_projections.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {

/// Frames of one kind, as one look finds them.
class GrowingArray : public FrameArray {
 public:
  std::optional<int64_t> planned;  // GrowingFrames::planned
  int64_t window = 1024;           // frames that one look asks about

  /// A number that changes with what is stored of a frame; nothing, and `lacks`, if it is not
  /// written.
  virtual std::optional<uint64_t> Evidence(int64_t frame, std::string* lacks) = 0;
  /// The value of what is not written.
  virtual double fill() const { return 0; }
  /// The values of a frame, as they are loaded.
  absl::StatusOr<std::vector<char>> Values(int64_t frame);
  /// Why a frame with these values seems to be half written: some of its rows hold nothing but the
  /// fill value, and at least half of the values of those rows are others in the frame before. "" =
  /// it does not.
  std::string SeemsHalfWritten(int64_t frame, const std::vector<char>& values);

 protected:
  /// Evidence by the values of a frame: nothing if all of them are the fill value. For frames whose
  /// space in the file tells nothing.
  std::optional<uint64_t> EvidenceOfValues(int64_t frame, double fill, std::string* lacks);
  /// As many frames as may be read in a look to see their values.
  void LimitWindow();
};

/// Mixes a number into a hash.
uint64_t Mixed(uint64_t hash, uint64_t number);

std::unique_ptr<GrowingProjections> FollowHdf5(const std::string& path,
                                               const ProjectionOptions& options);
std::unique_ptr<GrowingProjections> FollowZarr(const std::string& path,
                                               const ProjectionOptions& options);
std::unique_ptr<GrowingProjections> FollowTiff(const std::string& path,
                                               const ProjectionOptions& options);

}  // namespace octavo::storage
