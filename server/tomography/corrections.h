#pragma once

#include <stop_token>
#include <vector>

#include "absl/status/status.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/job_notes.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Finds what the request asks for of the open beam behind each projection, and then of the shift
/// of each along the rotation axis, and puts it into the layout of the object. `mass_profile`: the
/// `reference` of WithRowShifts. Tells the report and `notes`, which have what was found before an
/// error, too. Errors of WithDynamicFlats and WithRowShifts.
absl::Status FindCorrections(ScannedObject& object, job::JobRun& run, const std::stop_token& stop,
                             RowPreparer& rows, std::vector<double>& mass_profile,
                             model::TomographyReport& report, JobNotes& notes);

}  // namespace octavo::tomography
