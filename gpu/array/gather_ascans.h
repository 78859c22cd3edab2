#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu {

/// A-scans of a volume in device memory: [ascan, depth] of dtype, C order.
struct AscanView {
  const void* data = nullptr;
  DType dtype = DType::kU8;  // kU8, kU16, kF32
  int64_t ascans = 0, depth = 0;
};

/// The sources of each A-scan of the result: `taps` weighted A-scans.
struct GatherTable {
  const int32_t* index = nullptr;  // device [ascans, taps]: source A-scan, or -1 for none
  const float* weight =
      nullptr;  // device [ascans, taps]; sum to 1 where the source covers the place
  int64_t ascans = 0, taps = 0;
};

/// Operator family of resampling across A-scans.
class ResampleOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"resampling of A-scans"};

  virtual absl::Status Gather(StreamRef stream, const AscanView& in, const GatherTable& table,
                              void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<ResampleOps>> MakeResampleOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<ResampleOps>> MakeResampleOps(Device& device);
}

/// Each A-scan of out [table.ascans, depth] of in.dtype becomes the weighted mean of its taps
/// (math::Gather): taps without a source and NaN samples are left out. Where less than half of the
/// weight remains, out is NaN (f32) or 0. Integers are rounded half away from zero. InvalidArgument
/// names the fault. The call only enqueues. Indices must lie below in.ascans.
absl::Status GatherAscans(StreamRef stream, Device& device, const AscanView& in,
                          const GatherTable& table, void* out);

}  // namespace octavo::inline gpu
