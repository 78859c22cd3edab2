#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

#include "server/job/job.h"

namespace octavo::job {

/// The values of an image to show as black and white: its percentiles 0.2 and 99.8. `image`: device
/// f32 [rows, columns], of which the middle rows are looked at, up to 64 MiB. Waits for the stream.
absl::StatusOr<std::pair<double, double>> FindDisplayRange(JobRun& run, const float* image,
                                                           int64_t rows, int64_t columns);

}  // namespace octavo::job
