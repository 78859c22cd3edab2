#pragma once

// Private to this folder.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "gpu/array/array_ops.h"

namespace octavo::inline gpu {

/// Collects the steps of a chain. It knows the array type after the last step and the limits of a
/// chain, but no operation: the rules of each operation are in PlanOp (gpu/array/internal.h).
class ChainBuilder {
 public:
  using StepSpec = decltype(PlannedOp::spec);

  ChainBuilder(const ArrayType& in, const std::vector<ArrayType>& others, int64_t most_numbers);

  /// The next steps belong to the operation at `field`, which errors name.
  void BeginOp(std::string field) { field_ = std::move(field); }
  /// Records the current type as the result of the operation.
  void EndOp() { chain_.after.push_back(type_); }

  /// The array type after the last step.
  const ArrayType& type() const { return type_; }
  const std::vector<ArrayType>& others() const { return chain_.others; }
  const std::vector<PlannedOp>& steps() const { return chain_.steps; }

  // -- errors of the current operation
  /// The operation as a whole is at fault.
  absl::Status BadOp(const std::string& what) const;
  /// Its field `name` is at fault.
  absl::Status Bad(absl::string_view name, const std::string& what) const;
  /// Error if the current array is complex.
  absl::Status NoComplex() const;
  /// Error of the field "type" if the enumeration has no such value.
  absl::Status KnownScalar(Scalar scalar) const;
  /// The number of an axis of the current array; a negative `axis` counts from the end.
  absl::StatusOr<int> Axis(absl::string_view name, int64_t axis) const;
  /// Which axes of the current array the field "axes" names; an empty list names all.
  absl::StatusOr<std::vector<bool>> Axes(const std::vector<int64_t>& axes) const;

  /// The elements of a box of these extents, in its order, at these strides in another array.
  static GatherSpec Elements(int64_t bytes, const int64_t (&extent)[4], const int64_t (&stride)[4]);

  // -- steps
  /// Adds a step that turns the current array into `out`.
  absl::Status Add(StepSpec spec, ArrayType out);
  /// Adds a step that copies the current array's elements from `offset`, with these extents and
  /// strides, into `out`.
  absl::Status Gather(const int64_t (&extent)[4], const int64_t (&stride)[4], int64_t offset,
                      ArrayType out);
  /// Adds an elementwise step with a result of type `out`.
  absl::Status Map(MapSpec spec, Scalar out);
  /// Gives the current array other dims, of as many elements; no step.
  void Reshape(ArrayType type) { type_ = std::move(type); }
  /// Adds a table to the chain and returns the offset, in bytes, at which it begins.
  template <class T>
  int64_t AddTable(const std::vector<T>& table) {
    return AddTable(table.data(), table.size() * sizeof(T));
  }

  /// The chain with all steps added so far.
  ArrayChain Build() &&;

 private:
  int64_t AddTable(const void* data, size_t bytes);

  const int64_t most_numbers_;
  ArrayType type_;
  ArrayChain chain_;
  std::string field_;
};

}  // namespace octavo::inline gpu
