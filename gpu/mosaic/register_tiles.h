#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/tile_layout.h"
#include "gpu/mosaic/tile_positions.h"

namespace octavo::inline gpu {

/// As octavo.v1.RegisterTilesRequest; 0 = its default.
struct RegistrationSpec {
  TileLayoutSpec layout;
  std::vector<Vector3> stage_um;
  double max_shift_um = 0;
  bool in_depth = false;
  double min_confidence = 0.5;
  int64_t min_overlap = 0;
  double outlier_um = 0;
};

/// The joints of tiles, and the program that measures them: it makes an array f64 [joints, 5], a
/// TileAlignment each.
class Registration {
 public:
  /// InvalidArgument names the fields of RegisterTilesRequest.
  static absl::StatusOr<Registration> Plan(const RegistrationSpec& spec, const ArrayType& type);

  /// Null without joints.
  std::unique_ptr<const SlicedProgram> Program() const;
  /// The positions that follow from what the program made.
  TilePositions Solve(const std::vector<TileAlignment>& measured) const;
  size_t joints() const { return pairs_.size(); }

  /// Pairs that are measured together.
  struct Batch {
    size_t first = 0;
    PairBatch spec;
  };

 private:
  friend class RegistrationRun;
  friend class RegistrationProgram;
  RegistrationSpec spec_;
  ArrayType type_;
  TileLayout layout_;  // of what is compared: the tiles, or their means along z
  bool flatten_ = false;
  MeanSpec means_;                                     // flatten_: what makes them
  std::vector<TilePair> pairs_;                        // in the order of the batches
  std::vector<std::pair<int64_t, int64_t>> tiles_of_;  // of each pair
  std::vector<Batch> batches_;
};

}  // namespace octavo::inline gpu
