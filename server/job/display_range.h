#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "server/job/job.h"

namespace octavo::job {

/// The values of an image to show as black and white.
struct DisplayRange {
  double lo = 0, hi = 0;                  // both 0: no value is finite
  int64_t not_finite = 0, looked_at = 0;  // values
};

/// The percentiles 0.2 and 99.8 of the finite values, which are values themselves: those at the
/// places round(0.002 n) and round(0.998 n) of their order, n the number of values less one. By all
/// threads that the caller's may use.
DisplayRange DisplayRangeOf(const float* values, int64_t count);

/// The same of an image. `image`: device f32 [rows, columns], of which the
/// middle rows are looked at, up to 64 MiB. Waits for the stream.
absl::StatusOr<DisplayRange> FindDisplayRange(JobRun& run, const float* image, int64_t rows,
                                              int64_t columns);

}  // namespace octavo::job
