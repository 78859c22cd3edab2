#pragma once

// Private to this folder.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "gpu/array/array_ops.h"

namespace octavo::inline gpu {

class ChainBuilder;

// Each PlanOp checks one operation against the builder's current array and adds its steps. Errors
// name the field of the operation that is at fault.
absl::Status PlanOp(const FillOp& op, ChainBuilder* chain);  // chain_plan_elements.cc
absl::Status PlanOp(const ScaleOp& op, ChainBuilder* chain);
absl::Status PlanOp(const CombineOp& op, ChainBuilder* chain);
absl::Status PlanOp(const CopyOp& op, ChainBuilder* chain);  // chain_plan_shape.cc
absl::Status PlanOp(const CropOp& op, ChainBuilder* chain);
absl::Status PlanOp(const FlipOp& op, ChainBuilder* chain);
absl::Status PlanOp(const TransposeOp& op, ChainBuilder* chain);
absl::Status PlanOp(const ResizeOp& op, ChainBuilder* chain);
absl::Status PlanOp(const AffineOp& op, ChainBuilder* chain);  // chain_plan_warp.cc
absl::Status PlanOp(const MapCoordinatesOp& op, ChainBuilder* chain);
absl::Status PlanOp(const DisplaceOp& op, ChainBuilder* chain);
absl::Status PlanOp(const ShiftOp& op, ChainBuilder* chain);
absl::Status PlanOp(const ReduceOp& op, ChainBuilder* chain);  // chain_plan_reduce.cc
absl::Status PlanOp(const SlabOp& op, ChainBuilder* chain);
absl::Status PlanOp(const PercentileOp& op, ChainBuilder* chain);
absl::Status PlanOp(const HistogramOp& op, ChainBuilder* chain);
absl::Status PlanOp(const FftOp& op, ChainBuilder* chain);         // chain_plan_fft.cc
absl::Status PlanOp(const ArgExtremeOp& op, ChainBuilder* chain);  // chain_plan_reduce.cc
absl::Status PlanOp(const GaussianOp& op, ChainBuilder* chain);    // chain_plan_filter.cc
absl::Status PlanOp(const UniformOp& op, ChainBuilder* chain);
absl::Status PlanOp(const MedianOp& op, ChainBuilder* chain);
absl::Status PlanOp(const FunctionOp& op, ChainBuilder* chain);  // chain_plan_elements.cc
absl::Status PlanOp(const ThresholdOp& op, ChainBuilder* chain);
absl::Status PlanOp(const ChooseOp& op, ChainBuilder* chain);
absl::Status PlanOp(const PasteOp& op, ChainBuilder* chain);  // chain_plan_shape.cc
absl::Status PlanOp(const ConcatenateOp& op, ChainBuilder* chain);
absl::Status PlanOp(const SurfaceOp& op, ChainBuilder* chain);    // chain_plan_surface.cc
absl::Status PlanOp(const FlatFieldOp& op, ChainBuilder* chain);  // chain_plan_flat.cc
absl::Status PlanOp(const FlattenOp& op, ChainBuilder* chain);
absl::Status PlanOp(const FocalCurvatureOp& op, ChainBuilder* chain);

/// An array as four axes: its dims, right-aligned in the first three, and its lanes. Strides are in
/// numbers.
struct ArrayLayout {
  int64_t extent[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
  explicit ArrayLayout(const ArrayType& type) {
    extent[3] = type.lanes;
    for (int d = 0; d < type.rank(); ++d)
      extent[3 - type.rank() + d] = type.dims[static_cast<size_t>(d)];
    int64_t step = 1;
    for (int d = 3; d >= 0; step *= extent[d--]) stride[d] = step;
  }
};

/// Whether an array has the lanes and the shape of another, or of its last axes.
bool FitsLastAxes(const ArrayType& other, const ArrayType& type, int64_t lanes);

/// Error of the field "mask" unless the mask, if there is one, suits the current array.
absl::Status CheckMask(ArrayRef mask, const ChainBuilder& chain);

/// The weights of a correlation along an axis, in the order of the samples.
struct FilterKernel {
  std::vector<double> weight;
  int64_t before = 0;
};
/// A Gaussian with `radius` samples on either side, or its derivative, per sample.
FilterKernel GaussianKernel(double sigma, int64_t order, int64_t radius);

/// The real type of the parts of a complex type; a real type itself.
Scalar RealOf(Scalar scalar);
/// The type in which means, deviations and interpolated values of `scalar` are stored.
Scalar FloatOf(Scalar scalar);

/// The type in which values are kept between the steps of resampling an array of `scalar`: it holds
/// the array's numbers exactly, up to 2^53.
Scalar BetweenOf(Scalar scalar);
/// Adds the step that makes spline coefficients of the current array along `axis`, in BetweenOf of
/// its type.
absl::Status AddSpline(math::SampleEdge edge, size_t axis, int64_t padding, ChainBuilder* chain);

/// Tables of TapsSpec: [m, taps].
struct AxisTaps {
  std::vector<int32_t> index;
  std::vector<double> weight;
};
/// Half width, in samples, of the smoothing before a resize of an axis from n to m samples; 0 = no
/// smoothing.
int64_t ResizeRadius(const ResizeOp& op, int64_t n, int64_t m);
/// The samples that each result is made of.
int64_t ResizeTaps(const ResizeOp& op, int64_t radius);
math::SampleEdge EdgeOf(const ResizeOp& op);
/// Smoothing and sampling in one step, of coefficients if kCubic: symmetric filters may change
/// places.
AxisTaps TapsOfResize(const ResizeOp& op, int64_t n, int64_t m);

}  // namespace octavo::inline gpu
