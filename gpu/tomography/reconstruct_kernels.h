#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/stream.h"
#include "gpu/math/rotation.h"
#include "gpu/math/tomopy_rotation.h"

namespace octavo::inline gpu {

/// Rows of images that Back makes come in multiples of this.
inline constexpr int64_t kBackRows = 32;

/// Slices in device memory as the projectors want them: `lanes` slices that share their geometry
/// side by side, so that one load serves all of them. Images are f32 [group, row, column, lane],
/// sinograms f32 [group, angle, detector, lane], both with math::kRayMargin zero columns (or
/// detectors) on either side of each row.
struct RayView {
  int64_t groups = 0, lanes = 1;
  int64_t size = 0;       // rows and columns of the grid
  int64_t detectors = 0;  // bins of a projection
  int64_t angles = 0;
  const math::ForwardAngle* forward =
      nullptr;  // device [angles]; first of each range those with |cos| >= |sin|
  const math::BackAngle* back = nullptr;  // device [angles]
  const float* centers = nullptr;         // device [groups]: detector coordinate of the axis
  float pixel_size = 1;
  float radius =
      0;  // pixels farther than this from the middle are zero and stay so; huge = the whole grid
  math::RayInterpolation interpolation = math::RayInterpolation::kLinear;
  int64_t row_begin = 0, row_end = 0;  // rows that Back makes, multiples of kBackRows but for the
                                       // last one; row_end 0 = all

  OCTAVO_HOST_DEVICE int64_t back_rows() const {
    return (row_end == 0 ? size : row_end) - row_begin;
  }
  OCTAVO_HOST_DEVICE int64_t image_pitch() const { return size + 2 * math::kRayMargin; }
  OCTAVO_HOST_DEVICE int64_t sinogram_pitch() const { return detectors + 2 * math::kRayMargin; }
  int64_t image_elements() const { return groups * size * image_pitch() * lanes; }
  int64_t sinogram_elements() const { return groups * angles * sinogram_pitch() * lanes; }
};

/// Angles [begin, end) in the order of the view; those from `split` on step along columns.
struct AngleRange {
  int64_t begin = 0, split = 0, end = 0;
  OCTAVO_HOST_DEVICE int64_t count() const { return end - begin; }
};

/// Sinograms as they come: f32, strides in elements.
struct SinogramView {
  const float* data = nullptr;                 // device
  int64_t slice_stride = 0, angle_stride = 0;  // detectors are neighbours
};

/// Weights that all lanes share: one set, or one per group (stride 0 or that of a group), packed
/// like a view of one lane.
struct SharedWeights {
  const float* data = nullptr;
  int64_t group_stride = 0;
};

enum class ResidualKind { kPlain, kWeighted, kRatio };
enum class UpdateKind { kSirt, kMlem };
struct UpdateOptions {
  UpdateKind kind = UpdateKind::kSirt;
  float relaxation = 1, lo = 0, hi = 0;
};

inline constexpr int64_t kFilterSlack = 64;  // taps that a vector may read too many
/// Filter of a projection by direct convolution; the row goes on with its end values over
/// `edge_left`, `edge_right`.
struct RowFilter {
  const float* taps = nullptr;       // device [2 · detectors − 1 and kFilterSlack zeros], tap of
                                     // distance 0 in the middle
  const float* edge_left = nullptr;  // device [detectors]: weight of the first bin for what lies
                                     // left of it; null = zeros there
  const float* edge_right = nullptr;
};

/// An image turned about its middle, for the form of TomoPy's accelerated code
/// (gpu/tomography/tomopy_compat.h).
struct TurnedGrid {
  int64_t slices = 0, n = 0;
  math::TurnMatrix matrix;
  math::RayInterpolation interpolation = math::RayInterpolation::kNearest;
};

/// Sums come in so many parts, which the caller adds up: [part, group, lane].
inline constexpr int64_t kSumParts = 256;

/// Operator family of tomography. Everything enqueues; sums come in a fixed order, so results
/// repeat bit for bit on one device.
class TomographyOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"tomography"};

  /// Lanes of a group with which this backend processes so many slices fastest; several only where
  /// they share the centre.
  virtual int64_t Lanes(int64_t slices, bool shared_center) const = 0;
  /// Interpolated values (or terms of a filter's sum) that keep this backend busy for some tenths
  /// of a second: between such pieces of work it can be ended.
  virtual int64_t PieceSamples() const = 0;

  /// transposed[group, column, row, lane] = image[group, row, column, lane].
  virtual absl::Status Transpose(StreamRef stream, const RayView& view,
                                 DeviceSpan<const float> image, DeviceSpan<float> transposed) = 0;
  /// sinogram = A image for the angles of `range`; `transposed` may be null where range.split ==
  /// range.end.
  virtual absl::Status Forward(StreamRef stream, const RayView& view, const AngleRange& range,
                               DeviceSpan<const float> image, DeviceSpan<const float> transposed,
                               DeviceSpan<float> sinogram) = 0;
  /// image = Aᵀ sinogram over the angles of `range`, in the rows of the view; zero outside of the
  /// circle.
  virtual absl::Status Back(StreamRef stream, const RayView& view, const AngleRange& range,
                            DeviceSpan<const float> sinogram, DeviceSpan<float> image) = 0;

  /// Angle a of the view is angle order[a] of `in`; slices beyond `slices` are zero. Null data =
  /// ones.
  virtual absl::Status PackSinograms(StreamRef stream, const RayView& view, const SinogramView& in,
                                     DeviceSpan<const int32_t> order, int64_t slices,
                                     DeviceSpan<float> out) = 0;
  /// in f32 [slice, n, n] into the middle of the grid, zero around it and outside of the circle;
  /// null = `value` on all of the grid.
  virtual absl::Status PackImages(StreamRef stream, const RayView& view, DeviceSpan<const float> in,
                                  float value, int64_t n, int64_t slices,
                                  DeviceSpan<float> out) = 0;
  /// The middle n × n of `count` slices from `first`: out f32 [slice, n, n].
  virtual absl::Status UnpackImages(StreamRef stream, const RayView& view,
                                    DeviceSpan<const float> in, int64_t n, int64_t first,
                                    int64_t count, DeviceSpan<float> out) = 0;
  /// counts[0] = values that are not finite, counts[1] = negative ones.
  virtual absl::Status Inspect(StreamRef stream, DeviceSpan<const float> values, int64_t count,
                               DeviceSpan<int64_t> counts) = 0;
  /// values = max(values, 0).
  virtual absl::Status DropNegative(StreamRef stream, DeviceSpan<float> values, int64_t count) = 0;
  /// 1/value where the value is above `least`, else 0.
  virtual absl::Status Reciprocal(StreamRef stream, DeviceSpan<float> values, int64_t count,
                                  float least) = 0;

  /// From projected = A x makes b − A x, that times the row weights, or b / max(A x, floor), in
  /// place over `range`; where `sums` is not null, sums[part, group, lane] += ‖b − A x‖² of the
  /// range.
  virtual absl::Status Residual(StreamRef stream, const RayView& view, const AngleRange& range,
                                ResidualKind kind, DeviceSpan<const float> measured,
                                const SharedWeights& rows, float floor, DeviceSpan<float> projected,
                                DeviceSpan<double> sums) = 0;
  /// Updates the image where the column weight is not zero; changes[part, group, lane] += {‖new −
  /// old‖², ‖old‖²}.
  virtual absl::Status Update(StreamRef stream, const RayView& view, const UpdateOptions& options,
                              DeviceSpan<const float> back, const SharedWeights& columns,
                              DeviceSpan<float> image, DeviceSpan<double> changes) = 0;

  /// sums[part, group, lane] = Σ a² over a sinogram or image of `elements` (all lanes of a group).
  virtual absl::Status SquareSum(StreamRef stream, const RayView& view, DeviceSpan<const float> a,
                                 int64_t elements, DeviceSpan<double> sums) = 0;
  /// y = alpha[group, lane] x + beta[group, lane] y; device factors.
  virtual absl::Status ScaledAdd(StreamRef stream, const RayView& view,
                                 DeviceSpan<const float> alpha, DeviceSpan<const float> x,
                                 DeviceSpan<const float> beta, DeviceSpan<float> y,
                                 int64_t elements) = 0;
  /// Every row of `in` through `filter` into `out`.
  virtual absl::Status FilterRows(StreamRef stream, const RayView& view, const RowFilter& filter,
                                  DeviceSpan<const float> in, DeviceSpan<float> out) = 0;

  // The form of TomoPy's accelerated code: plain images [slice, n, n].
  /// out = in turned, or, where `add`, out += in turned.
  virtual absl::Status Rotate(StreamRef stream, const TurnedGrid& grid, DeviceSpan<const float> in,
                              bool add, DeviceSpan<float> out) = 0;
  /// Adds to every pixel of row d of a slice data[slice · stride + d] − sum of the row (or data/sum
  /// where `ratio`); sums[slice, row] += (data − sum)².
  virtual absl::Status SpreadResidual(StreamRef stream, int64_t slices, int64_t n,
                                      DeviceSpan<const float> data, int64_t slice_stride,
                                      bool ratio, DeviceSpan<float> turned,
                                      DeviceSpan<double> sums) = 0;
  /// image += update/cover/n, or image *= that where `ratio`; where cover is not 0 and the update
  /// finite.
  virtual absl::Status SpreadUpdate(StreamRef stream, int64_t slices, int64_t n,
                                    DeviceSpan<const float> update, DeviceSpan<const float> cover,
                                    bool ratio, DeviceSpan<float> image) = 0;
};
// Its twins; gpu/backend makes one for each device that it opens. InvalidArgument if the device is
// of another backend.
namespace host {
absl::StatusOr<std::unique_ptr<TomographyOps>> MakeTomographyOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<TomographyOps>> MakeTomographyOps(Device& device);
}

}  // namespace octavo::inline gpu
