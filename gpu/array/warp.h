#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/operators.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/sampling.h"

// Resampling at any positions: operations on arrays and the steps that they need. An element of
// several parts (complex numbers, lanes) is sampled part by part, so the scalars of steps are real.
namespace octavo::inline gpu {

// -- operations of a chain (gpu/array/array_ops.h)

/// How an array is sampled at positions. `constant` is the value outside with kConstant, and of
/// positions that are no numbers. Without `prefilter`, kCubic takes the array as coefficients.
struct SamplingRules {
  math::Sampling sampling = math::Sampling::kDefault;
  math::SampleEdge edge = math::SampleEdge::kDefault;
  math::Number constant;
  bool prefilter = true;
};
/// out[i] = in at matrix × i + offset, in samples; `matrix` in C order, `offset` empty = 0, `shape`
/// empty or 0 = the input's. Source: scipy.ndimage.affine_transform.
struct AffineOp {
  SamplingRules rules;
  std::vector<double> matrix, offset;
  std::vector<int64_t> shape;
};
/// out[i] = in at coordinates[:, i]; for rank r the second array is [r, ...] and gives the result
/// the shape [...], or `shape` if that is not empty; or it is [...] with r lanes. Source:
/// scipy.ndimage.map_coordinates.
struct MapCoordinatesOp {
  SamplingRules rules;
  std::vector<int64_t> shape;
  size_t other = 0;
};
/// out[i] = in at i + field[:, i]; the second array is [r, shape of the input], its first two axes
/// may be one, or has the input's shape and r lanes.
struct DisplaceOp {
  SamplingRules rules;
  size_t other = 0;
};
/// out[.., i, ..] = in[.., i - amount, ..] along `axis`, amounts for each column: the second array
/// has the shape of the other axes. Source: scipy.ndimage.shift, column by column.
struct ShiftOp {
  SamplingRules rules;
  int64_t axis = -1;
  size_t other = 0;
};

// -- the work of one launch

/// The coefficients of cubic splines along one axis: out [outer, n + 2 padding, inner] of in
/// [outer, n, inner]. Coefficients in the padding continue the axis where `edge` is not symmetric.
struct SplineSpec {
  Scalar in{}, out{};  // out: f32 or f64
  math::SampleEdge edge = math::SampleEdge::kMirror;
  int64_t outer = 1, n = 1, inner = 1, padding = 0;
  OCTAVO_HOST_DEVICE int64_t made() const { return n + 2 * padding; }  // coefficients of a line
};

/// Where the positions of the results of a WarpSpec come from.
enum class WarpPositions : uint8_t {
  kMatrix = 0,        // matrix × index of the result + offset
  kCoordinates = 1,   // an array of them
  kDisplacement = 2,  // index of the result + an array of displacements
};

/// out[i] = in at a position, for arrays of three axes (fewer axes are the last ones; extents in
/// front are 1). Positions count in samples from the centre of the first one.
struct WarpSpec {
  Scalar in{}, out{};  // in: of coefficients if sampling is kCubic
  math::Sampling sampling = math::Sampling::kLinear;
  math::SampleEdge edge = math::SampleEdge::kConstant;
  WarpPositions positions = WarpPositions::kMatrix;
  Scalar coordinates{};  // of the second array
  bool complex = false;  // parts: real and imaginary ones by turns
  int8_t rank = 3;
  int8_t padding[3] = {0, 0, 0};                                // of coefficients, on either side
  int64_t in_extent[3] = {1, 1, 1}, out_extent[3] = {1, 1, 1};  // in: of samples, without padding
  int64_t parts = 1;
  math::Number constant;
  double matrix[3][3] = {}, offset[3] = {};
  // In numbers of the second array: from an axis's coordinate to that of the next axis, and from
  // one result's to the next one's.
  int64_t axis_stride = 0, result_stride = 1;
  size_t other_index = 0;
  OCTAVO_HOST_DEVICE int64_t results() const {
    return out_extent[0] * out_extent[1] * out_extent[2];
  }
};

/// out[o, i, q] = in[o, i - amount[o, q], q], both [outer, n, inner] with `parts` numbers each.
struct ShiftSpec {
  Scalar in{}, out{}, amounts{};
  math::Sampling sampling = math::Sampling::kLinear;
  math::SampleEdge edge = math::SampleEdge::kConstant;
  bool complex = false;
  int64_t outer = 1, n = 1, inner = 1, parts = 1, padding = 0;
  math::Number constant;
  size_t other_index = 0;
  OCTAVO_HOST_DEVICE int64_t results() const { return outer * n * inner; }
};

/// Operator family of resampling. Enqueue only; memory must live until the stream has passed.
class WarpOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"resampling"};

  virtual absl::Status Spline(StreamRef stream, const SplineSpec& spec, const void* in,
                              void* out) = 0;
  /// `coordinates`: null if the positions come from the matrix.
  virtual absl::Status Warp(StreamRef stream, const WarpSpec& spec, const void* in,
                            const void* coordinates, void* out) = 0;
  virtual absl::Status Shift(StreamRef stream, const ShiftSpec& spec, const void* in,
                             const void* amounts, void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<WarpOps>> MakeWarpOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<WarpOps>> MakeWarpOps(Device& device);
}

}  // namespace octavo::inline gpu
