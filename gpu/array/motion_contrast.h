#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "gpu/device/device_span.h"
#include "gpu/device/dtype.h"
#include "gpu/device/operators.h"
#include "gpu/math/motion_contrast.h"

namespace octavo::inline gpu {

/// A volume with repeated B-scans in device memory.
struct RepeatView {
  const void* data = nullptr;  // [row, x, z] of dtype, C order
  DType dtype = DType::kF32;   // amplitudes: kU8, kU16, kF32; phases: kC64
  int64_t rows = 0, columns = 0, depth = 0;
  const int32_t* order =
      nullptr;  // device [bscans, repeats]: the row of each repeat, in the order of time
  int64_t bscans = 0, repeats = 0;
};

/// Operator family of motion contrast (angiography) and flow (Doppler).
class RepeatOps : public Operators {
 public:
  static constexpr OperatorFamily kFamily{"motion contrast"};

  virtual absl::Status SpeckleVariance(StreamRef stream, const RepeatView& view,
                                       const math::StoredScale& scale, DeviceSpan<float> out) = 0;
  virtual absl::Status AmplitudeDecorrelation(StreamRef stream, const RepeatView& view,
                                              const math::StoredScale& scale,
                                              DeviceSpan<float> out) = 0;
  virtual absl::Status ContrastEnFace(StreamRef stream, bool decorrelation, const RepeatView& view,
                                      const math::StoredScale& scale, int64_t z_begin,
                                      int64_t z_end, DeviceSpan<float> out) = 0;
  virtual absl::Status PhaseOverRepeats(StreamRef stream, const RepeatView& view,
                                        int64_t half_window, DeviceSpan<float> out) = 0;
  virtual absl::Status PhaseOverAscans(StreamRef stream, const RepeatView& view,
                                       int64_t half_window, DeviceSpan<float> out) = 0;
};
// The factories of the twins. gpu/backend makes one twin for each device that it opens.
// InvalidArgument if the device belongs to another backend.
namespace host {
absl::StatusOr<std::unique_ptr<RepeatOps>> MakeRepeatOps(Device& device);
}
namespace cuda {
absl::StatusOr<std::unique_ptr<RepeatOps>> MakeRepeatOps(Device& device);
}

enum class MotionContrast : uint8_t { kSpeckleVariance, kAmplitudeDecorrelation };

/// OCT angiography: out f32 [bscans, x, z] from the amplitudes of at least two repeats. `scale`
/// maps stored numbers to values. The call only enqueues. InvalidArgument names the fault. out is
/// NaN where a repeat is NaN.
absl::Status Angiogram(StreamRef stream, Device& device, MotionContrast kind,
                       const RepeatView& view, const math::StoredScale& scale,
                       DeviceSpan<float> out);

/// The same as an en face image: out f32 [bscans, x], its mean over the depth samples [z_begin,
/// z_end); NaN where all samples are NaN. It needs no memory for the intermediate angiogram.
absl::Status AngiogramEnFace(StreamRef stream, Device& device, MotionContrast kind,
                             const RepeatView& view, const math::StoredScale& scale,
                             int64_t z_begin, int64_t z_end, DeviceSpan<float> out);

/// Doppler: out f32 [bscans, x, z], the phase in rad by which the complex depth samples rotate from
/// one repeat to the next: arg Σ z(r+1) conj z(r) over successive repeats and over the depth
/// samples within ±half_window (less at the ends).
absl::Status DopplerOverRepeats(StreamRef stream, Device& device, const RepeatView& view,
                                int64_t half_window, DeviceSpan<float> out);

/// The same from one A-scan to the next: out f32 [row, x, z] with x = 0 … columns-2. It needs no
/// order table.
absl::Status DopplerOverAscans(StreamRef stream, Device& device, const RepeatView& view,
                               int64_t half_window, DeviceSpan<float> out);

}  // namespace octavo::inline gpu
