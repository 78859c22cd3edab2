#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/array_ref.h"
#include "gpu/device/device.h"
#include "gpu/device/operators.h"
#include "gpu/device/scalar.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/elements.h"

// Functions, thresholds and choices element by element: operations of a chain
// (gpu/array/array_ops.h), and the steps that they need.
namespace octavo::inline gpu {

// -- operations

/// A logarithm or an exponential of real numbers. Computed in and stored as f32 (f64 of f64):
/// integers are converted first.
struct FunctionOp {
  math::Function function = math::Function::kLn;
  bool keep_rest = false;  // logarithms: numbers that are not above 0 stay as they are
};
/// The mask u8 of the real numbers above `value`: 1 there, 0 elsewhere, NaN included. With `otsu`
/// the value is Otsu's threshold of a histogram of `bins` bins between the smallest and the largest
/// finite number: the middle of the bin that ends the lower class. Source:
/// skimage.filters.threshold_otsu.
struct ThresholdOp {
  double value = 0;
  bool otsu = false;
  int64_t bins = 256;
};
/// x where the mask is not 0, or where x is above the threshold; elsewhere the element of `other`,
/// or `value`. The mask is u8; it and `other` have the shape of the input or of its last axes, and
/// are repeated along the first axes. `other` has the input's type. Source: numpy.where.
struct ChooseOp {
  ArrayRef mask;  // not given: the threshold
  ThresholdOp threshold;
  ArrayRef other;  // not given: the value
  math::Number value;
};

// -- the work of one launch

/// out[i] = function(in[i]), f32 or f64.
struct FunctionSpec {
  Scalar in{};
  math::Function function = math::Function::kLn;
  bool keep_rest = false;
  int64_t count = 0;
};
/// out[i] = in[i] is above the threshold, u8. The threshold is that of Otsu if `bins` is not 0.
struct AboveSpec {
  Scalar in{};
  double threshold = 0;
  int64_t bins = 0;
  int64_t count = 0;
};
/// What Otsu needs: the threshold, the keys (math::KeyOf) of the smallest and the largest finite
/// number, and the counts.
constexpr int64_t OtsuWorkBytes(const AboveSpec& s) { return s.bins == 0 ? 0 : (3 + s.bins) * 8; }
/// out[i] = in[i] where it is chosen, else an element of `other` or `value`, which are elements of
/// `in`. A mask has an element for each `lanes` numbers.
struct ChooseSpec {
  Scalar in{};
  ArrayRef mask, other;
  AboveSpec above;  // without a mask
  int64_t count = 0, lanes = 1, mask_count = 1, other_count = 1;
  alignas(16) char value[16] = {};  // an element, as it is stored
};

/// Operator family of functions and choices. Enqueue only; memory must live until the stream has
/// passed. `out` may be `in` if the elements have the same size.
class ElementOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"functions of elements"};

  virtual absl::Status Apply(StreamRef stream, const FunctionSpec& spec, const void* in,
                             void* out) = 0;
  /// Otsu's threshold, as f64, in the first 8 of the workspace's OtsuWorkBytes; NaN if no number is
  /// finite.
  virtual absl::Status Otsu(StreamRef stream, const AboveSpec& spec, const void* in,
                            void* workspace) = 0;
  /// `threshold`: device memory; null: that of the specification.
  virtual absl::Status Above(StreamRef stream, const AboveSpec& spec, const void* in,
                             const double* threshold, void* out) = 0;
  /// `mask` and `other` may be null, as the specification says.
  virtual absl::Status Choose(StreamRef stream, const ChooseSpec& spec, const void* in,
                              const uint8_t* mask, const double* threshold, const void* other,
                              void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<ElementOps>> MakeElementOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<ElementOps>> MakeElementOps(Device& device);
}

}  // namespace octavo::inline gpu
