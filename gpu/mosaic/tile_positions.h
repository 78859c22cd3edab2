#pragma once

#include <cstdint>
#include <vector>

#include "gpu/mosaic/tile_layout.h"

// Positions of tiles from what their joints say: one robust least squares over all of them.
namespace octavo::inline gpu {

enum class JointState : uint8_t { kUsed = 1, kFallback = 2, kOutlier = 3 };
struct TileJoint {
  int64_t first = 0, second = 0;
  Vector3 difference_um;  // position of the second tile minus that of the first, as found
  double confidence = 0, residual_um = 0;
  int64_t voxels = 0;
  JointState state = JointState::kUsed;
};

enum class TileState : uint8_t {
  kRegistered = 1,
  kUnmatched = 2,
  kMoved = 3,
  kDetached = 4,
  kDoubted = 5
};
struct RegisteredTile {
  Vector3 position_um, correction_um;
  int joints = 0, used_joints = 0;
  TileState state = TileState::kRegistered;
};

struct TilePositions {
  std::vector<RegisteredTile> tiles;
  std::vector<TileJoint> joints;
  double rms_residual_um = 0;
};

/// As octavo.v1.MosaicService says. Of `joints`, difference, confidence and voxels are given.
TilePositions SolveTilePositions(const std::vector<Vector3>& stage_um,
                                 std::vector<TileJoint> joints, double min_confidence,
                                 double outlier_um);

}  // namespace octavo::inline gpu
