#pragma once

#include <stop_token>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// The values that become the lowest and the highest stored number of a result of integers. Both 0:
/// the result holds the values themselves.
struct ValueWindow {
  double low = 0, high = 0;
};

/// The window of the request; if it has none and the result needs one, a window from trial slices,
/// spread over the rows, or over the axes that are tried. Values outside of it are clipped, so it
/// is a little wider than what nearly all pixels of the trials have. `image`: device memory for one
/// slice. Cancelled.
absl::StatusOr<ValueWindow> WindowFor(const model::TomographySpec& spec,
                                      const ScannedObject& object, job::JobRun& run,
                                      const std::stop_token& stop, RowPreparer& rows, float* image);

}  // namespace octavo::tomography
