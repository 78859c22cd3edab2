#include "server/tomography/trial_slice.h"

#include <cstdint>

#include "gpu/base/status.h"

namespace octavo::tomography {

absl::Status MakeTrialSlice(job::JobRun& run, const std::stop_token& stop,
                            const TomographyConfig& config, DeviceSpan<const float> sinogram,
                            DeviceSpan<float> image) {
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Reconstructor::DeviceBytes(config, run.device()));
  OCTAVO_RETURN_IF_ERROR(run.Charge(bytes));
  absl::Status status;
  {
    const auto made = Reconstructor::Create(config, run.device());
    status = made.status();
    if (made.ok())
      status =
          (*made)
              ->Run(run.stream(), {.data = sinogram, .angle_first = false, .slices = 1}, nullptr,
                    image, [&](const IterationReport&) { return !stop.stop_requested(); })
              .status();
    (void)run.stream().Synchronize();
  }
  run.Discharge(bytes);
  if (stop.stop_requested()) return absl::CancelledError("cancelled");
  return status;
}

}  // namespace octavo::tomography
