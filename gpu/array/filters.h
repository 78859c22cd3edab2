#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/filter.h"

// Filters over neighbours: operations of a chain (gpu/array/array_ops.h), and the steps that they
// need. Axes are the dims of an array; each lane and each part of a complex number is filtered by
// itself.
namespace octavo::inline gpu {

// -- operations. Lists have one value for each axis, or one for all of them. Lengths are in
// samples; if `step`, the length of a sample along each axis in um, is not empty, they are in um.
// Results are f32 (f64 of f64; complex numbers likewise); the sums are computed in that type.

/// A Gaussian, or a derivative of order 1 or 2 of one, along each axis; derivatives are per sample,
/// or per um. The kernel has floor(truncate σ + 1/2) samples on either side. An axis of sigma 0
/// stays as it is. Source: scipy.ndimage.gaussian_filter.
struct GaussianOp {
  std::vector<double> sigma;
  std::vector<int64_t> order;  // 0 (the default), 1, 2; a rising edge has a positive derivative
  double truncate = 4;
  math::Edge edge = math::Edge::kReflect;
  double value = 0;  // beyond the ends, with kConstant
  std::vector<double> step;
};
/// The mean over `size` samples along each axis; of an even size the window has one sample more
/// before the centre than behind it. An axis of a size up to 1 stays as it is. Sizes
/// in um are rounded to whole samples. Source: scipy.ndimage.uniform_filter.
struct UniformOp {
  std::vector<double> size;
  math::Edge edge = math::Edge::kReflect;
  double value = 0;
  std::vector<double> step;
};
/// The median of the window of `size` (3 or 5) samples along each of `axes` (empty = all). NaN
/// counts as larger than all numbers. Type and shape stay. Source: scipy.ndimage.median_filter.
struct MedianOp {
  int64_t size = 3;
  std::vector<int64_t> axes;
  math::Edge edge = math::Edge::kReflect;  // not kConstant
};

// -- the work of one launch

/// out[o, i, q] = Σ_t weight[t] in[o, i - before + t, q] of real numbers [outer, n, inner]; `out`
/// is f32 or f64, in which the sums are computed. The weights are in the chain's tables.
struct CorrelateSpec {
  Scalar in{}, out{};
  int64_t outer = 1, n = 1, inner = 1;
  int64_t taps = 1, before = 0;
  math::Edge edge = math::Edge::kReflect;
  double value = 0;
  int64_t weight_offset = 0;  // bytes within the chain's tables
};

/// An axis of an array in memory: its samples and their distance in numbers.
struct StridedAxis {
  int64_t extent = 1, stride = 0;
  bool window = false;  // the window extends along it
};
/// The median of a window of `size` samples along `slide` and along the axes of `rest` that say so.
/// The last axis of `rest` is the fastest in memory, beside `slide`.
struct MedianSpec {
  Scalar scalar{};
  int size = 3, windows = 1;  // samples along an axis; how many axes
  StridedAxis slide, rest[3];
  math::Edge edge = math::Edge::kReflect;
};

/// Operator family of filters over neighbours. Enqueue only; memory must live until the stream has
/// passed, and `out` must not be `in`.
class FilterOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"filters over neighbours"};

  virtual absl::Status Correlate(StreamRef stream, const CorrelateSpec& spec, const void* in,
                                 DeviceSpan<const double> weight, void* out) = 0;
  virtual absl::Status Median(StreamRef stream, const MedianSpec& spec, const void* in,
                              void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<FilterOps>> MakeFilterOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<FilterOps>> MakeFilterOps(Device& device);
}

}  // namespace octavo::inline gpu
