#pragma once

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/layout.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Device memory of WithRowShifts; 0 if no drift is looked for. It is free again afterwards.
absl::StatusOr<int64_t> DriftFinderBytes(const TomographyLayout& layout, Device& device);

/// The layout of the object with the shift of each of its projections along the rotation axis,
/// where the request asks for that (preparation.row_drift); else as it is. Prepares all rows of the
/// detector once, tells the report, and warns of shifts that are in doubt. Waits for the stream.
absl::StatusOr<TomographyLayout> WithRowShifts(const ScannedObject& object, job::JobRun& run,
                                               RowPreparer& rows, model::TomographyReport& report);

}  // namespace octavo::tomography
