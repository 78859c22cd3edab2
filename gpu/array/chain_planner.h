#pragma once

// Private to chain_plan*.cc.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/array/array_ops.h"

namespace octavo::inline gpu {

/// Four axes: dims, right-aligned, and lanes; strides in numbers.
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

/// Breaks operations down into the steps of a chain, one after another. `type` is the array type
/// after the last operation.
class ChainPlanner {
 public:
  ChainPlanner(const std::vector<ArrayType>& others, int64_t most_numbers)
      : others_(others), most_numbers_(most_numbers) {}

  /// Errors name `field` and the part of the operation that is at fault.
  absl::Status Plan(const Op& op, const std::string& field);

  ArrayType type;
  ArrayChain chain;

 private:
  using StepSpec = decltype(PlannedOp::spec);

  absl::Status Bad(absl::string_view name, const std::string& what) const;
  absl::Status NoComplex() const;
  /// The number of an axis that may be counted from the last.
  absl::StatusOr<int> Axis(absl::string_view name, int64_t axis) const;
  absl::StatusOr<std::vector<bool>> Axes(const std::vector<int64_t>& axes) const;
  static absl::Status KnownScalar(Scalar scalar, absl::string_view where);

  /// Adds a step that turns the current array into `out`.
  absl::Status Add(StepSpec spec, ArrayType out);
  absl::Status Gather(const int64_t (&extent)[4], const int64_t (&stride)[4], int64_t offset,
                      ArrayType out);
  absl::Status Map(MapSpec spec, Scalar out);
  /// Adds a table to the chain and returns the offset at which it begins.
  int64_t Table(const void* data, size_t bytes);

  // Elementwise operations (chain_plan.cc).
  absl::Status Do(const FillOp& op);
  absl::Status Do(const ScaleOp& op);
  absl::Status Do(const CombineOp& op);
  absl::Status Do(const FftOp& op);
  // Operations that move numbers (chain_plan_shape.cc).
  absl::Status Do(const CopyOp& op);
  absl::Status Do(const CropOp& op);
  absl::Status Do(const FlipOp& op);
  absl::Status Do(const TransposeOp& op);
  absl::Status Do(const ResizeOp& op);
  // Reductions (chain_plan_reduce.cc).
  absl::Status Do(const ReduceOp& op);
  absl::Status Do(const SlabOp& op);
  absl::Status Do(const PercentileOp& op);
  absl::Status Do(const HistogramOp& op);
  absl::Status Reduce(math::Reduction kind, math::Part part, const AxesSpec& axes, bool skip_nan,
                      Scalar out, std::vector<int64_t> dims);
  /// The axes to reduce. If `end` is given, there is one such axis, reduced over the range [begin,
  /// end).
  AxesSpec Split(const std::vector<bool>& chosen, int64_t begin, int64_t end) const;
  std::vector<int64_t> Without(const std::vector<bool>& chosen, bool keep_dims) const;

  const std::vector<ArrayType>& others_;
  const int64_t most_numbers_;
  std::string field_;
};

/// The real type of the parts of a complex type.
Scalar RealOf(Scalar scalar);
/// The type in which means, deviations and interpolated values of `scalar` are stored.
Scalar FloatOf(Scalar scalar);

}  // namespace octavo::inline gpu
