#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/job_notes.h"
#include "server/tomography/layout.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Device memory of WithRowShifts; 0 if no drift is looked for. It is free again afterwards.
absl::StatusOr<int64_t> DriftFinderBytes(const TomographyLayout& layout, Device& device);

/// Host memory of WithRowShifts: the profiles of all projections; 0 if no drift is looked for.
absl::StatusOr<int64_t> DriftFinderHostBytes(const TomographyLayout& layout);

/// The layout of the object with the shift of each of its projections along the rotation axis,
/// where the request asks for that (preparation.row_drift); else as it is. Prepares all rows of the
/// detector once, and tells the report and `notes`, with warnings of shifts that are in doubt.
/// Waits for the stream. Cancelled when `stop` is requested. `reference`: the mean profile that the
/// shifts are measured from, so that the volumes of a series lie on each other; if it is empty,
/// their mean is 0 and it is set.
absl::StatusOr<TomographyLayout> WithRowShifts(const ScannedObject& object, job::JobRun& run,
                                               const std::stop_token& stop, RowPreparer& rows,
                                               std::vector<double>& reference,
                                               model::TomographyReport& report, JobNotes& notes);

}  // namespace octavo::tomography
