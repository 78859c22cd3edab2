#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ref.h"
#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/host_device.h"

// The surface of a sample: an operation of a chain (gpu/array/array_ops.h), and the steps that it
// needs.
namespace octavo::inline gpu {

enum class SurfaceMethod : uint8_t { kDefault = 0, kOtsu = 1, kGradient = 2 };
/// The depth of a sample's surface in each column along `axis`: f32, NaN where unknown. kOtsu (the
/// default) confirms a threshold over `thickness` of tissue, which is in um if `step`, the length
/// of a sample, is not 0. kGradient is the steepest rise of a smoothed column. Fields of the other
/// method must be unset.
struct SurfaceOp {
  int64_t axis = -1;
  bool keep_dims = false;
  SurfaceMethod method = SurfaceMethod::kDefault;
  ArrayRef mask;
  std::optional<double> sigma;          // kOtsu 1.5, kGradient 2
  std::optional<double> lateral_sigma;  // 4
  double thickness = 0;                 // 0: 16 samples
  double step = 0;
  std::vector<int64_t> tile;  // columns of a tile along each lateral axis; empty or 0: all
  bool zero_is_data = false;
  std::optional<int64_t> lateral_size;  // 15
  std::optional<int64_t> order;         // 1
  std::optional<bool> logarithm;        // true
  bool detect_cutting_errors = false;
};

// -- the work of one launch. Arrays are [n, rows, columns], the depth axis first; a mask has
// strides of its own, in the order depth, rows, columns.

struct DepthMask {
  ArrayRef array;
  int64_t stride[3] = {0, 0, 0};
};
/// How many samples the columns have, and how many columns there are.
struct DepthShape {
  int64_t n = 1, rows = 1, columns = 1;
  OCTAVO_HOST_DEVICE int64_t lines() const { return rows * columns; }
};
/// out[i] = math::SampleOf(in[i]), as pairs of f32.
struct SampleWeightsSpec {
  Scalar in{};
  DepthShape shape;
  DepthMask mask;
  bool zero_is_data = false;
};
/// Pairs [outer, n, inner] smoothed along n, with the weights in the chain's tables.
struct SmoothSamplesSpec {
  int64_t outer = 1, n = 1, inner = 1;
  int radius = 0;
  int64_t weight_offset = 0;  // bytes within the chain's tables: f32
};
/// The surface of pairs, f32 [rows, columns].
struct SurfaceSpec {
  DepthShape shape;
  int64_t thickness = 1, tile_rows = 1, tile_columns = 1;
  OCTAVO_HOST_DEVICE int64_t tiles_across() const {
    return (shape.columns + tile_columns - 1) / tile_columns;
  }
  OCTAVO_HOST_DEVICE int64_t tiles() const {
    return (shape.rows + tile_rows - 1) / tile_rows * tiles_across();
  }
};
/// What a tile's threshold is made of, in workspace: SurfaceTile (surface_elements.h).
constexpr int64_t kSurfaceTileBytes = 260 * 8;
/// The tiles, and two maps.
constexpr int64_t SurfaceMapBytes(const SurfaceSpec& s) {
  return (s.shape.rows * s.shape.columns * 4 + 255) / 256 * 256;
}
constexpr int64_t SurfaceWorkBytes(const SurfaceSpec& s) {
  const int64_t across = (s.shape.columns + s.tile_columns - 1) / s.tile_columns;
  const int64_t tiles = (s.shape.rows + s.tile_rows - 1) / s.tile_rows * across;
  return 2 * SurfaceMapBytes(s) + tiles * kSurfaceTileBytes;
}
/// Of each column the samples that the mask leaves, moved to its begin; the rest is not written.
struct CompactSpec {
  DepthShape shape;
  DepthMask mask;
};
/// The steepest rise of columns of f32, compacted if there is a mask. The kernels are in the
/// chain's tables, f64.
struct SteepestSpec {
  DepthShape shape;
  DepthMask mask;
  int64_t radius = 0, rise_offset = 0, smooth_offset = -1;  // -1: no cutting errors
  double sigma = 0;
};

/// Operator family of surfaces. Enqueue only; memory must live until the stream has passed, and
/// `out` must not be `in`. A mask may be null.
class SurfaceOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"surfaces"};

  virtual absl::Status SampleWeights(StreamRef stream, const SampleWeightsSpec& spec,
                                     const void* in, const uint8_t* mask, void* out) = 0;
  virtual absl::Status SmoothSamples(StreamRef stream, const SmoothSamplesSpec& spec,
                                     const void* in, DeviceSpan<const float> weight, void* out) = 0;
  virtual absl::Status Surface(StreamRef stream, const SurfaceSpec& spec, const void* in, void* out,
                               void* workspace) = 0;
  virtual absl::Status Compact(StreamRef stream, const CompactSpec& spec, const void* in,
                               const uint8_t* mask, void* out) = 0;
  /// `smooth` may be null.
  virtual absl::Status Steepest(StreamRef stream, const SteepestSpec& spec, const void* in,
                                const uint8_t* mask, const double* rise, const double* smooth,
                                void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<SurfaceOps>> MakeSurfaceOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<SurfaceOps>> MakeSurfaceOps(Device& device);
}

}  // namespace octavo::inline gpu
