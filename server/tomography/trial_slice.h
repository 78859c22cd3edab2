#pragma once

#include <stop_token>

#include "absl/status/status.h"

#include "gpu/device/device_span.h"
#include "gpu/tomography/reconstruct.h"
#include "server/job/job.h"

namespace octavo::tomography {

/// Reconstructs one slice to look at it, and waits for it: a small piece of work beside the
/// batches, whose memory is charged meanwhile. `config`: of one slice. Cancelled if `stop` is
/// requested.
absl::Status MakeTrialSlice(job::JobRun& run, const std::stop_token& stop,
                            const TomographyConfig& config, DeviceSpan<const float> sinogram,
                            DeviceSpan<float> image);

}  // namespace octavo::tomography
