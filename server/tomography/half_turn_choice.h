#pragma once

#include <stop_token>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Reports the half turns of the job (object.half_turns), sets `object` to the one that is used,
/// and logs it: the one that was asked for, or with HalfTurn::kBest the one whose projections fit
/// together best (consistency.h) in a few slices. With HalfTurn::kBest the layout then has the open
/// beam and the row shifts, too, where the request asks for them: they are found in each half turn
/// before it is compared. `spec`: of the planned one.
absl::Status TakeHalfTurn(const model::TomographySpec& spec, job::JobRun& run,
                          const std::stop_token& stop, RowPreparer& rows, ScannedObject& object,
                          model::TomographyReport& report);

}  // namespace octavo::tomography
