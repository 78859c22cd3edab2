#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
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
  int64_t first_overlap = 0, candidates = 0;
  int64_t end = 0;                       // one past the last plane of the fixed slab
  static constexpr int64_t kParts = 32;  // sums of a candidate, of as many parts of the plane
  /// Of each share: voxels that both have, the sums of both, of their squares, of their products.
  static constexpr int64_t kSums = 6;
  OCTAVO_HOST_DEVICE int64_t shares() const { return candidates * kParts; }
  /// Numbers of the result. All values are differences to one value of the slab (SlabReader), so
  /// that squares of a mean far above the deviation lose nothing.
  OCTAVO_HOST_DEVICE int64_t numbers() const { return shares() * kSums; }
};

/// Means along one axis of an array, NaN left out: f32 [outer, rows, columns]. Element (o, y, x) is
/// the mean over k < depth of in[offset + o outer_stride + k depth_stride + y row_stride + x].
struct MeanSpec {
  Scalar scalar{};
  int64_t offset = 0, outer_stride = 0, depth_stride = 0, row_stride = 0;
  int64_t outer = 1, depth = 1, rows = 1, columns = 1;
  OCTAVO_HOST_DEVICE int64_t elements() const { return outer * rows * columns; }
};
/// Items of a launch, from `begin` to `end` - 1.
struct LaunchRange {
  int64_t begin = 0, end = 0;
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
  OCTAVO_HOST_DEVICE int64_t voxels() const { return extent[0] * extent[1] * extent[2]; }
};
struct BlendTables {
  DeviceSpan<const PlacedTile> tiles;
  DeviceSpan<const int32_t> starts, lists;
};

enum class SectionBlend : uint8_t { kDefault = 0, kLater = 1, kEarlier = 2, kHann = 3 };
/// A section where it lies in the result.
struct PlacedSection {
  const void* data = nullptr;
  int64_t extent[3] = {1, 1, 1};  // of the array
  int64_t first = 0;              // its first plane that is used
  int64_t z = 0;                  // where that lies in the result
  int64_t overlap = 0;            // planes in common with what lies there before
  double position[2] = {0, 0};    // of its first voxel along y and x, in voxels of the result
  double gain = 1;
};
/// The sections that may touch a plane of the result: from `begin` to `end` - 1.
struct SectionRange {
  int32_t begin = 0, end = 0;
};
struct StackSpec {
  Scalar scalar{}, out{};
  int64_t extent[3] = {1, 1, 1};
  SectionBlend blend = SectionBlend::kLater;
  double valid_above = 0, gap = 0;
  OCTAVO_HOST_DEVICE int64_t voxels() const { return extent[0] * extent[1] * extent[2]; }
};
struct StackTables {
  DeviceSpan<const PlacedSection> sections;
  DeviceSpan<const SectionRange> planes;  // of each plane of the result
};
/// The histograms of one digit of what a section and the sections before it have where both are
/// above 0: of each of four ranks, of the numbers whose digits before are `prefix`. Ranks 0 and 1
/// are of what lies there before, 2 and 3 of the section. Digits are those of the numbers' bits as
/// f32: 11, 10 and 10 of them.
struct JointDigits {
  static constexpr int kRounds = 3, kRanks = 4, kBins = 2048;
  int64_t section = 1;                               // its number
  int64_t begin[3] = {0, 0, 0}, end[3] = {0, 0, 0};  // where it overlaps the others, in the result
  int round = 0;
  uint32_t prefix[kRanks] = {0, 0, 0, 0};
  OCTAVO_HOST_DEVICE int shift() const { return 20 - 10 * round; }
  OCTAVO_HOST_DEVICE uint32_t DigitOf(uint32_t bits) const {
    return bits >> shift() & (round == 0 ? 0x7FFu : 0x3FFu);
  }
  OCTAVO_HOST_DEVICE bool HasPrefix(uint32_t bits, int rank) const {
    return round == 0 || bits >> (shift() + 10) == prefix[rank];
  }
  OCTAVO_HOST_DEVICE int64_t voxels() const {
    int64_t n = 1;
    for (int d = 0; d < 3; ++d) n *= end[d] > begin[d] ? end[d] - begin[d] : 0;
    return n;
  }
};

/// Operator family of the mosaic's parts. Enqueue only; memory must live until the stream has
/// passed. `stop`: gpu/array/sliced_program.h.
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
                             DeviceSpan<TileAlignment> out, StopFlag stop) = 0;
  /// Of some shares the sums that the correlations of the candidates are made of.
  virtual absl::Status SlabSums(StreamRef stream, const SlabPair& spec, LaunchRange shares,
                                const void* fixed, const void* moving, DeviceSpan<double> out,
                                StopFlag stop) = 0;
  /// Some elements of the means.
  virtual absl::Status Means(StreamRef stream, const MeanSpec& spec, LaunchRange elements,
                             const void* in, DeviceSpan<float> out) = 0;
  /// Some voxels of the result.
  virtual absl::Status Stitch(StreamRef stream, const BlendSpec& spec, LaunchRange voxels,
                              const void* tiles, const BlendTables& tables, void* out) = 0;
  /// Likewise.
  virtual absl::Status Stack(StreamRef stream, const StackSpec& spec, LaunchRange voxels,
                             const StackTables& tables, void* out) = 0;
  /// Adds to the histograms [kRanks, kBins] what some of the voxels have.
  virtual absl::Status CountJointDigits(StreamRef stream, const StackSpec& spec,
                                        const JointDigits& digits, LaunchRange voxels,
                                        const StackTables& tables, DeviceSpan<uint64_t> counts) = 0;
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
