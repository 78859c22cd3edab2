#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/element.h"
#include "gpu/math/host_device.h"

// The work of one launch in the mosaic's parts. Axes are z, y, x.
namespace octavo::inline gpu {

/// Where one tile lies in the array of all tiles, in elements.
struct TilePlace {
  int64_t offset = 0;
  int64_t extent[3] = {1, 1, 1};
};
/// An array of tiles: stride[2] is 1.
struct TileArray {
  Scalar scalar{};
  int64_t stride[3] = {0, 0, 1};
};

/// Two tiles and the shift of the second that the stage says, in whole voxels; where to look.
struct TilePair {
  TilePlace tile[2];
  int64_t shift[3] = {0, 0, 0};  // position of the second tile minus that of the first
  int64_t limit[3] = {0, 0, 0};  // the search is shift ± limit
};
/// What was found.
struct TileAlignment {
  double shift[3] = {0, 0, 0};  // position of the second tile minus that of the first, voxels
  double correlation = 0;
  double voxels = 0;  // that both tiles have
};

/// Pairs whose overlaps are transformed together, in a box of `length`, the rest of which is 0.
struct PairBatch {
  TileArray array;
  int64_t pairs = 0;
  int64_t length[3] = {1, 1, 1};
  OCTAVO_HOST_DEVICE int64_t elements() const { return length[0] * length[1] * length[2]; }
};

/// Slabs one above the other, of one type.
struct SlabPair {
  Scalar scalar{};
  int64_t plane[2] = {0, 0};      // elements of a plane
  int64_t row[2] = {0, 0};        // elements of a row
  int64_t offset[2] = {0, 0};     // of the first element of the middle, in plane 0
  int64_t height = 0, width = 0;  // of the middle
  int64_t first[2] = {0, 0};      // the first plane that counts
  int64_t planes[2] = {0, 0};     // planes from there on that can overlap
  int64_t first_overlap = 0, candidates = 0;
  int64_t end = 0;                       // one past the last plane of the fixed slab
  static constexpr int64_t kParts = 32;  // sums of a candidate, of as many parts of the plane
  /// Numbers of the result: sum and sum of squares of each plane of the fixed slab, likewise of the
  /// moving one, then the parts of each candidate's sum of products. All values are differences to
  /// the middle value of the slab's first plane that counts.
  OCTAVO_HOST_DEVICE int64_t numbers() const {
    return 2 * (planes[0] + planes[1]) + candidates * kParts;
  }
};

enum class TileBlend : uint8_t { kDefault = 0, kLinear = 1, kHann = 2, kAverage = 3 };

/// A tile where it lies in the result.
struct PlacedTile {
  TilePlace place;
  double position[3] = {0, 0, 0};  // of its first voxel, in voxels of the result
};
/// The result [extent], in whose plane each cell of kCell² voxels has a list of the tiles that may
/// touch it: lists[starts[cell]] ... lists[starts[cell + 1]].
struct BlendSpec {
  static constexpr int64_t kCell = 64;
  TileArray array;
  Scalar out{};
  int64_t extent[3] = {1, 1, 1};
  TileBlend blend = TileBlend::kLinear;
  double gap = 0;
  OCTAVO_HOST_DEVICE int64_t columns() const { return (extent[2] + kCell - 1) / kCell; }
  OCTAVO_HOST_DEVICE int64_t rows() const { return (extent[1] + kCell - 1) / kCell; }
};
struct BlendTables {
  DeviceSpan<const PlacedTile> tiles;
  DeviceSpan<const int32_t> starts, lists;
};

/// Operator family of the mosaic's parts. Enqueue only; memory must live until the stream has
/// passed.
class MosaicOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"parts of a mosaic"};

  /// The windowed overlaps of each pair, without their means: out [pairs, 2, length].
  virtual absl::Status WindowOverlaps(StreamRef stream, const PairBatch& batch, const void* tiles,
                                      DeviceSpan<const TilePair> pairs,
                                      DeviceSpan<math::Complex64> out) = 0;
  /// The phases of the cross power of `in` [pairs, 2, elements]: out [pairs, elements].
  virtual absl::Status CrossPhase(StreamRef stream, const PairBatch& batch,
                                  DeviceSpan<const math::Complex64> in,
                                  DeviceSpan<math::Complex64> out) = 0;
  /// The best of the peaks of `surface` [pairs, length], refined.
  virtual absl::Status Align(StreamRef stream, const PairBatch& batch, const void* tiles,
                             DeviceSpan<const TilePair> pairs,
                             DeviceSpan<const math::Complex64> surface,
                             DeviceSpan<TileAlignment> out) = 0;
  /// The sums that the correlations of all candidates are made of.
  virtual absl::Status SlabSums(StreamRef stream, const SlabPair& spec, const void* fixed,
                                const void* moving, DeviceSpan<double> out) = 0;
  virtual absl::Status Stitch(StreamRef stream, const BlendSpec& spec, const void* tiles,
                              const BlendTables& tables, void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<MosaicOps>> MakeMosaicOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<MosaicOps>> MakeMosaicOps(Device& device);
}

}  // namespace octavo::inline gpu
