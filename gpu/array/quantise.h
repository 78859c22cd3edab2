#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/math/quantise.h"

namespace octavo::inline gpu {

/// How f32 numbers become elements of a smaller type.
struct Quantisation {
  DType out = DType::kU16;  // kU8, kU16 or kF16
  double lo = 0, hi = 1;    // integers: the values that become 0 and the largest number
};

/// Operator family of numbers stored in fewer bits.
class QuantiseOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"numbers in fewer bits"};
  virtual absl::Status Quantise(StreamRef stream, const math::QuantiseSpec& spec, const float* in,
                                void* out, uint64_t* clipped) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<QuantiseOps>> MakeQuantiseOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<QuantiseOps>> MakeQuantiseOps(Device& device);
}

/// Enqueues out[i] = in[i] as an element of the type, and adds to `clipped`, device memory [2], how
/// many were clipped below and above.
///   kU8, kU16: the nearest number to (in - lo) * top / (hi - lo), clipped to [0, top]; NaN becomes
///     0. Clipped are those that lie beyond the window by more than half a step, and NaN, as below.
///   kF16: the nearest half; beyond the largest half that one, with its sign; NaN stays NaN and
///     does not count.
/// InvalidArgument: another type; an integer type without a finite window, lo < hi; fewer than two
/// counts.
absl::Status Quantise(StreamRef stream, Device& device, const Quantisation& quantisation,
                      DeviceSpan<const float> in, void* out, DeviceSpan<uint64_t> clipped);

}  // namespace octavo::inline gpu
