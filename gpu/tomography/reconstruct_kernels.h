#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/stream.h"
#include "gpu/math/indices.h"
#include "gpu/math/rotation.h"
#include "gpu/math/tomopy_rotation.h"
#include "gpu/math/volume_plane.h"

namespace octavo::inline gpu {

/// The number of image rows that Back computes is a multiple of this.
inline constexpr int64_t kBackRows = 32;

/// The layout of slices in device memory for the projectors. A group interleaves `lanes` slices
/// that share their geometry, so that one load reads all of them. Images are f32 [group, row,
/// column, lane], sinograms f32 [group, angle, detector, lane]. Both have math::kRayMargin zero
/// columns (or detectors) on either side of each row.
struct RayView {
  int64_t groups = 0, lanes = 1;
  int64_t size = 0;       // rows and columns of the grid
  int64_t detectors = 0;  // bins of a projection
  int64_t angles = 0;
  const math::ForwardAngle* forward =
      nullptr;  // device [angles]; in each range the angles with |cos| >= |sin| come first
  const math::BackAngle* back = nullptr;  // device [angles]
  const float* centers = nullptr;         // device [groups]: detector coordinate of the axis
  float pixel_size = 1;
  float radius = 0;  // pixels farther than this from the middle stay zero; huge = the whole grid
  math::RayInterpolation interpolation = math::RayInterpolation::kLinear;
  int64_t row_begin = 0, row_end = 0;  // rows that Back computes, multiples of kBackRows except for
                                       // the last row; row_end 0 = all

  OCTAVO_HOST_DEVICE int64_t back_rows() const {
    return (row_end == 0 ? size : row_end) - row_begin;
  }
  OCTAVO_HOST_DEVICE int64_t image_pitch() const { return size + 2 * math::kRayMargin; }
  OCTAVO_HOST_DEVICE int64_t sinogram_pitch() const { return detectors + 2 * math::kRayMargin; }
  /// The position of column 0 of a row of the images (or of detector 0 of a row of the sinograms),
  /// in elements of `lanes` numbers. Rows are counted from the beginning of all groups, or of one.
  OCTAVO_HOST_DEVICE int64_t ImageRow(int64_t row) const {
    return row * image_pitch() + math::kRayMargin;
  }
  OCTAVO_HOST_DEVICE int64_t SinogramRow(int64_t row) const {
    return row * sinogram_pitch() + math::kRayMargin;
  }
  /// Whether a pixel lies within `radius` of the middle of the grid.
  OCTAVO_HOST_DEVICE bool Counts(int64_t row, int64_t column) const {
    const float middle = 0.5f * static_cast<float>(size - 1);
    return math::InCircle(static_cast<float>(column) - middle, static_cast<float>(row) - middle,
                          radius);
  }
  int64_t image_elements() const { return groups * size * image_pitch() * lanes; }
  int64_t sinogram_elements() const { return groups * angles * sinogram_pitch() * lanes; }
};

/// Angles [begin, end) in the order of the view. The rays of those from `split` on step along
/// columns.
struct AngleRange {
  int64_t begin = 0, split = 0, end = 0;
  OCTAVO_HOST_DEVICE int64_t count() const { return end - begin; }
};

/// Sinograms as the caller stores them: f32, strides in elements.
struct SinogramView {
  const float* data = nullptr;                 // device
  int64_t slice_stride = 0, angle_stride = 0;  // detectors are neighbours
  /// The projection of a slice at an angle; null if there is no data.
  OCTAVO_HOST_DEVICE const float* Row(int64_t slice, int64_t angle) const {
    return data == nullptr ? nullptr : data + slice * slice_stride + angle * angle_stride;
  }
};

/// Weights that all lanes share, in the layout of a view of one lane. One set for all groups
/// (stride 0), or one per group.
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

/// Factors of the iterations of total variation.
struct TvSteps {
  float rays = 1;      // of the row weights: the steps of the duals of rays
  float columns = 1;   // of the column weights
  float slopes = 0.5;  // the step of the duals of slopes
  float limit = 0;     // the largest dual of a slope
  float strength = 1;  // of ∇ beside A
  float image = 1;     // of the steps of the image
};

/// The filter of a projection, a convolution. `edge_left` and `edge_right` continue the row with
/// its end values.
struct RowFilter {
  const float* taps = nullptr;  // device [2 · detectors − 1], the tap of distance 0 in the middle
  const float* edge_left = nullptr;  // device [detectors]: weight of the first bin for the bins
                                     // left of it; null = zeros there
  const float* edge_right = nullptr;
};

/// A rotation of images about their middle, as in TomoPy's accelerated code
/// (gpu/tomography/tomopy_compat.h).
struct TurnedGrid {
  int64_t slices = 0, n = 0;
  math::TurnMatrix matrix;
  math::RayInterpolation interpolation = math::RayInterpolation::kNearest;
};

/// The number of parts of a sum, [part, group, lane]; the caller adds the parts.
inline constexpr int64_t kSumParts = 256;

/// Operator family of tomography. All calls only enqueue. Sums are computed in a fixed order, so
/// results repeat bit for bit on one device.
class TomographyOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"tomography"};

  /// The number of lanes with which this backend processes so many slices fastest; more than one
  /// only if the slices share the centre.
  virtual int64_t Lanes(int64_t slices, bool shared_center) const = 0;
  /// The number of interpolated values that keep this backend busy for
  /// some tenths of a second. A run can be cancelled between such pieces of work.
  virtual int64_t PieceSamples() const = 0;
  /// About as many such values take as long as the filter of a row.
  virtual int64_t FilterSamples(int64_t detectors) const = 0;

  /// transposed[group, column, row, lane] = image[group, row, column, lane].
  virtual absl::Status Transpose(StreamRef stream, const RayView& view,
                                 DeviceSpan<const float> image, DeviceSpan<float> transposed) = 0;
  /// sinogram = A image for the angles of `range`; `transposed` may be null where range.split ==
  /// range.end.
  virtual absl::Status Forward(StreamRef stream, const RayView& view, const AngleRange& range,
                               DeviceSpan<const float> image, DeviceSpan<const float> transposed,
                               DeviceSpan<float> sinogram) = 0;
  /// image = Aᵀ sinogram over the angles of `range`, in the rows of the view; zero outside the
  /// circle.
  virtual absl::Status Back(StreamRef stream, const RayView& view, const AngleRange& range,
                            DeviceSpan<const float> sinogram, DeviceSpan<float> image) = 0;

  /// image += Aᵀ sinogram over all angles of the view, at the points of `plane`; its slices are the
  /// groups of the view, which has one lane. Adds nothing outside the circle. `image`: f32
  /// [plane.rows(), plane.columns()], without margins.
  virtual absl::Status AddPlane(StreamRef stream, const RayView& view,
                                const math::VolumePlane& plane, DeviceSpan<const float> sinogram,
                                DeviceSpan<float> image) = 0;

  /// Angle a of the view is angle order[a] of `in`. Slices beyond `slices` become zero. Null data
  /// means ones.
  virtual absl::Status PackSinograms(StreamRef stream, const RayView& view, const SinogramView& in,
                                     DeviceSpan<const int32_t> order, int64_t slices,
                                     DeviceSpan<float> out) = 0;
  /// The counterpart of PackSinograms: f32 [slice, angle, detector] of the first `slices` slices,
  /// whose angle order[a] is angle a of the view.
  virtual absl::Status UnpackSinograms(StreamRef stream, const RayView& view,
                                       DeviceSpan<const float> in, DeviceSpan<const int32_t> order,
                                       int64_t slices, DeviceSpan<float> out) = 0;
  /// Copies f32 [slice, n, n] into the middle of the grid, with zeros around it and outside the
  /// circle. A null `in` means `value` on the whole grid.
  virtual absl::Status PackImages(StreamRef stream, const RayView& view, DeviceSpan<const float> in,
                                  float value, int64_t n, int64_t slices,
                                  DeviceSpan<float> out) = 0;
  /// The middle n × n of `count` slices from `first`: out f32 [slice, n, n].
  virtual absl::Status UnpackImages(StreamRef stream, const RayView& view,
                                    DeviceSpan<const float> in, int64_t n, int64_t first,
                                    int64_t count, DeviceSpan<float> out) = 0;
  /// counts[0] = the number of values that are not finite, counts[1] = that of negative values.
  virtual absl::Status Inspect(StreamRef stream, DeviceSpan<const float> values, int64_t count,
                               DeviceSpan<int64_t> counts) = 0;
  /// values = max(values, 0).
  virtual absl::Status DropNegative(StreamRef stream, DeviceSpan<float> values, int64_t count) = 0;
  /// 1/value where the value is above `least`, else 0.
  virtual absl::Status Reciprocal(StreamRef stream, DeviceSpan<float> values, int64_t count,
                                  float least) = 0;

  /// Replaces projected = A x over `range` with b − A x, with b − A x times the row weights, or
  /// with b / max(A x, floor). If `sums` is not null, sums[part, group, lane] += ‖b − A x‖² of the
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

  // Operators of total variation; `math` is gpu/math/total_variation.h.
  /// dual = math::DualOfRay of `bar` = A x̄; where `first`, dual counts as zero and `projected` =
  /// bar, else projected = (projected + bar) / 2, which is A x. Steps are the row weights times
  /// steps.rays. sums[part, group, lane] += ‖measured − projected‖².
  virtual absl::Status DualRays(StreamRef stream, const RayView& view, const SharedWeights& rows,
                                const TvSteps& steps, bool first, DeviceSpan<const float> measured,
                                DeviceSpan<const float> bar, DeviceSpan<float> dual,
                                DeviceSpan<float> projected, DeviceSpan<double> sums) = 0;
  /// right, down = math::DualOfSlope of x̄ = `bar`. The slope towards a pixel without a column
  /// weight, or from one, is zero. gaps[part, group, lane] += {Σ of math::VariationGap, steps.limit
  /// Σ of the lengths of the slopes}.
  virtual absl::Status DualSlopes(StreamRef stream, const RayView& view,
                                  const SharedWeights& columns, const TvSteps& steps,
                                  DeviceSpan<const float> bar, DeviceSpan<float> right,
                                  DeviceSpan<float> down, DeviceSpan<double> gaps) = 0;
  /// image = math::PrimalStep within the bounds of `options`, where the column weight (times
  /// steps.columns) is not zero, and bar = 2 image − the image before. changes[part, group,
  /// lane] += {‖new − old‖², ‖old‖²}.
  virtual absl::Status PrimalStep(StreamRef stream, const RayView& view,
                                  const UpdateOptions& options, const TvSteps& steps,
                                  DeviceSpan<const float> back, const SharedWeights& columns,
                                  DeviceSpan<const float> right, DeviceSpan<const float> down,
                                  DeviceSpan<float> image, DeviceSpan<float> bar,
                                  DeviceSpan<double> changes) = 0;

  /// sums[part, group, lane] = Σ a² over a sinogram or image with `elements` numbers (all lanes of
  /// a group).
  virtual absl::Status SquareSum(StreamRef stream, const RayView& view, DeviceSpan<const float> a,
                                 int64_t elements, DeviceSpan<double> sums) = 0;
  /// y = alpha[group, lane] x + beta[group, lane] y; the factors are device memory.
  virtual absl::Status ScaledAdd(StreamRef stream, const RayView& view,
                                 DeviceSpan<const float> alpha, DeviceSpan<const float> x,
                                 DeviceSpan<const float> beta, DeviceSpan<float> y,
                                 int64_t elements) = 0;
  /// Filters every row of `in` with `filter` into `out`; `view` has all rows of a slice, or an even
  /// number of them from an even one on.
  virtual absl::Status FilterRows(StreamRef stream, const RayView& view, const RowFilter& filter,
                                  DeviceSpan<const float> in, DeviceSpan<float> out) = 0;

  // Operators of the form of TomoPy's accelerated code: plain images [slice, n, n].
  /// out = the rotated `in`; with `add`, out += the rotated `in`.
  virtual absl::Status Rotate(StreamRef stream, const TurnedGrid& grid, DeviceSpan<const float> in,
                              bool add, DeviceSpan<float> out) = 0;
  /// Adds data[slice · stride + d] − sum of the row to every pixel of row d of a slice (with
  /// `ratio`: data/sum). sums[slice, row] += (data − sum)².
  virtual absl::Status SpreadResidual(StreamRef stream, int64_t slices, int64_t n,
                                      DeviceSpan<const float> data, int64_t slice_stride,
                                      bool ratio, DeviceSpan<float> turned,
                                      DeviceSpan<double> sums) = 0;
  /// image += update/cover/n, or with `ratio` image *= update/cover/n, wherever cover is not 0 and
  /// the result is finite.
  virtual absl::Status SpreadUpdate(StreamRef stream, int64_t slices, int64_t n,
                                    DeviceSpan<const float> update, DeviceSpan<const float> cover,
                                    bool ratio, DeviceSpan<float> image) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<TomographyOps>> MakeTomographyOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<TomographyOps>> MakeTomographyOps(Device& device);
}

}  // namespace octavo::inline gpu
