#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/host_device.h"

// What tiles of a mosaic have in common, and its removal: operations of a chain
// (gpu/array/array_ops.h), and the steps that they need.
namespace octavo::inline gpu {

enum class FlatMethod : uint8_t { kDefault = 0, kQuadratic = 1, kBasic = 2 };
/// The illumination that the tiles [tile, y, x] have in common: f32 [y, x] of mean 1.
struct FlatFieldOp {
  FlatMethod method = FlatMethod::kDefault;
  double smoothness = 0;  // kBasic; 0: 1
};
/// Divides each tile by a flat field [tile y, tile x], the second array. The tiles lie side by side
/// along `axes` (empty: the last two). Type and shape stay.
struct FlattenOp {
  size_t flat = 0;
  std::vector<int64_t> axes;
};
/// The amounts of ShiftOp that undo what the tiles of a surface [y, x] have in common.
struct FocalCurvatureOp {
  std::vector<int64_t> tile;
  FlatMethod method = FlatMethod::kDefault;
  double smoothness = 0;
};

// -- the work of one launch

/// The tiles [rows, columns] of a map [map_rows, map_columns], one after the other, as f32; NaN
/// beyond the map.
struct CutTilesSpec {
  Scalar in{};
  int64_t map_rows = 1, map_columns = 1, rows = 1, columns = 1;
  OCTAVO_HOST_DEVICE int64_t across() const { return (map_columns + columns - 1) / columns; }
  OCTAVO_HOST_DEVICE int64_t tiles() const { return (map_rows + rows - 1) / rows * across(); }
};
/// How a pixel is seen from the median of its tile.
enum class FromMedian : uint8_t {
  kRatio,       // v / median
  kDifference,  // v - median
  kFill,        // v, or the median if v is not finite; 0 if neither is
};
/// Tiles [tiles, pixels] seen from their medians, which are found in workspace, as f32.
struct FromMedianSpec {
  Scalar in{};
  int64_t tiles = 1, pixels = 1;
  FromMedian how = FromMedian::kRatio;
};
constexpr int64_t FromMedianWorkBytes(const FromMedianSpec& s) { return s.tiles * 8; }
/// The flat of BaSiC's model of f32 tiles [tiles, kBasicSize, kBasicSize], not brought to mean 1.
constexpr int64_t kBasicSize = 128;
constexpr int64_t kMostBasicTiles = 1024;  // the solver cannot be stopped
struct BasicSpec {
  int64_t tiles = 1;
  double smoothness = 1;
};
/// Residuals, multipliers and weights of all tiles and five images (f32), brightnesses and sums of
/// the tiles (f64).
constexpr int64_t BasicWorkBytes(const BasicSpec& s) {
  return (3 * s.tiles + 5) * kBasicSize * kBasicSize * 4 + 2 * s.tiles * 8;
}
/// f32 [rows, columns], or the quadratic surface fitted to it, brought to mean 1 or 0.
struct LevelFlatSpec {
  int64_t rows = 1, columns = 1;
  bool fit = false, mean_one = true;
};
constexpr int64_t kLevelFlatWorkBytes = 32 * 8;  // sums, f64
/// in / flat of the element's place in its tile. The flat's two axes lie along two axes of the
/// array, whose element index i is at i / stride % extent; the array's other axes do not matter.
struct FlattenSpec {
  Scalar in{}, flat{};
  size_t other_index = 0;
  int64_t count = 0, extent[2] = {1, 1}, stride[2] = {1, 1}, tile[2] = {1, 1};
};
/// A map [map_rows, map_columns] of -flat of the place in its tile.
struct SpreadSpec {
  int64_t map_rows = 1, map_columns = 1, rows = 1, columns = 1;
};

/// Operator family of flat fields. Enqueue only; memory must live until the stream has passed, and
/// `out` must not be `in`, but for Flatten.
class FlatFieldOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"flat fields"};

  virtual absl::Status CutTiles(StreamRef stream, const CutTilesSpec& spec, const void* in,
                                void* out) = 0;
  /// `medians`: f64 of each tile.
  virtual absl::Status FromMedian(StreamRef stream, const FromMedianSpec& spec, const void* in,
                                  const double* medians, void* out) = 0;
  virtual absl::Status Basic(StreamRef stream, const BasicSpec& spec, const void* in, void* out,
                             void* workspace) = 0;
  virtual absl::Status LevelFlat(StreamRef stream, const LevelFlatSpec& spec, const void* in,
                                 void* out, void* workspace) = 0;
  virtual absl::Status Flatten(StreamRef stream, const FlattenSpec& spec, const void* in,
                               const void* flat, void* out) = 0;
  virtual absl::Status Spread(StreamRef stream, const SpreadSpec& spec, const void* in,
                              void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<FlatFieldOps>> MakeFlatFieldOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<FlatFieldOps>> MakeFlatFieldOps(Device& device);
}

}  // namespace octavo::inline gpu
