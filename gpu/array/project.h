#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu {

enum class Axis : uint8_t { kY = 0, kX = 1, kZ = 2 };  // position in [y, x, z]

/// View of a volume in device memory: [y, x, z] of dtype, C order.
struct VolumeView {
  const void* data = nullptr;
  DType dtype = DType::kU8;  // kU8, kI8, kU16, kF16, kF32, kC64
  int64_t shape[3] = {0, 0, 0};
};

/// Operator family of projections and cuts.
class ProjectOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"projections"};

  /// Maximum over x of B-scans [y_begin, y_end) into rows of out [y, z].
  virtual absl::Status MaxOverX(StreamRef stream, const VolumeView& volume, int64_t y_begin,
                                int64_t y_end, void* out) = 0;
  /// Maximum over y of B-scans [y_begin, y_end) into out [x, z], combined with the old values of
  /// out if `accumulate`.
  virtual absl::Status MaxOverY(StreamRef stream, const VolumeView& volume, int64_t y_begin,
                                int64_t y_end, bool accumulate, void* out) = 0;
  /// Maximum over z in [z_begin, z_end) of B-scans [y_begin, y_end) into rows of out [y, x].
  virtual absl::Status MaxOverZ(StreamRef stream, const VolumeView& volume, int64_t y_begin,
                                int64_t y_end, int64_t z_begin, int64_t z_end, void* out) = 0;
  /// Copies the plane at `index` of `axis` into out, in C order of the two axes that remain.
  virtual absl::Status ExtractPlane(StreamRef stream, const VolumeView& volume, Axis axis,
                                    int64_t index, void* out) = 0;
  /// Σ p and Σ p² of the samples [z_begin, z_end) of each A-scan of `power` [ascans, depth] into
  /// out [ascans, 2].
  virtual absl::Status PowerSums(StreamRef stream, DeviceSpan<const float> power, int64_t ascans,
                                 int64_t depth, int64_t z_begin, int64_t z_end,
                                 DeviceSpan<float> out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<ProjectOps>> MakeProjectOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<ProjectOps>> MakeProjectOps(Device& device);
}

/// Checks the arguments and runs the operator. InvalidArgument / OutOfRange name the fault. out:
/// device memory of ProjectionOf(volume.dtype) (Mip) or volume.dtype (ExtractPlane). Maxima ignore
/// NaN (all NaN gives NaN). The calls only enqueue. Projections are running reductions per block:
/// call Mip with the B-scans that a block has touched. Over x and z it recomputes their rows; over
/// y it combines them with the old values of out.
absl::Status Mip(StreamRef stream, Device& device, const VolumeView& volume, Axis axis,
                 int64_t y_begin, int64_t y_end, bool accumulate, void* out);
absl::Status ExtractPlane(StreamRef stream, Device& device, const VolumeView& volume, Axis axis,
                          int64_t index, void* out);
/// The maximum over the depths [z_begin, z_end) of a whole volume, [y, x], as Mip makes it over all
/// depths.
absl::Status EnFaceSlab(StreamRef stream, Device& device, const VolumeView& volume, int64_t z_begin,
                        int64_t z_end, void* out);

/// The sums from which the sharpness of A-scans is computed: out f32 [ascans, 2] gets Σ p and Σ p²
/// over the depth samples [z_begin, z_end) of each A-scan of `power`, f32 [ascans, depth]. The
/// larger Σ p² / (Σ p)² is, the fewer samples hold the power. The order of summation is that of
/// math/sharpness.h on every backend. The call only enqueues. OutOfRange names the fault.
absl::Status PowerSums(StreamRef stream, Device& device, DeviceSpan<const float> power,
                       int64_t ascans, int64_t depth, int64_t z_begin, int64_t z_end,
                       DeviceSpan<float> out);

/// Elements of a projection along, or a cut across, `axis`.
int64_t PlaneElements(const int64_t shape[3], Axis axis);

}  // namespace octavo::inline gpu
