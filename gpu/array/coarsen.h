#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/project.h"
#include "gpu/device/device.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/math/array_ops.h"
#include "gpu/math/coarsen.h"

namespace octavo::inline gpu {

/// A box of a volume [a, b, c] of any element type, shrunk by a whole factor along each axis.
/// Complex numbers count with their magnitude.
struct Coarsening {
  struct Window {
    double lo = 0, hi = 1;  // stored values that become 0 and 255; hi > lo
  };
  int64_t factor = 1;                            // a power of two
  math::Reduction kind = math::Reduction::kMax;  // of the voxels of a cube: kMax or kMean
  std::optional<Window> window;                  // the result is u8
  Box3 box;

  /// Samples of the result along an axis.
  int64_t results(int axis) const { return (box.count[axis] + factor - 1) / factor; }
};

/// Element type of the result: u8 with a window, else f32 of means and magnitudes, else that of the
/// volume.
DType ResultOf(const Coarsening& coarsening, DType volume);

/// Operator family of coarse pictures.
class CoarsenOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"coarse pictures"};
  virtual absl::Status Coarsen(StreamRef stream, const math::CoarsenSpec& spec, const void* in,
                               void* out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<CoarsenOps>> MakeCoarsenOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<CoarsenOps>> MakeCoarsenOps(Device& device);
}

/// The work of a valid coarsening of a volume of `shape`. InvalidArgument: the factor or the
/// window; OutOfRange unless the box lies in the volume.
absl::StatusOr<math::CoarsenSpec> PlanCoarsening(const Coarsening& coarsening, DType dtype,
                                                 const int64_t shape[3]);

/// Enqueues the coarse picture into `out`, device memory of ResultOf, C order. Errors: those of
/// PlanCoarsening.
absl::Status Coarsen(StreamRef stream, Device& device, const VolumeView& volume,
                     const Coarsening& coarsening, void* out);

}  // namespace octavo::inline gpu
