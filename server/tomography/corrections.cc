#include "server/tomography/corrections.h"

#include "gpu/base/status.h"
#include "server/tomography/drift_finder.h"
#include "server/tomography/flat_finder.h"

namespace octavo::tomography {

absl::Status FindCorrections(ScannedObject& object, job::JobRun& run, const std::stop_token& stop,
                             RowPreparer& rows, std::vector<double>& mass_profile,
                             model::TomographyReport& report, JobNotes& notes) {
  OCTAVO_ASSIGN_OR_RETURN(object.layout, WithDynamicFlats(object, run, stop, report, notes));
  OCTAVO_ASSIGN_OR_RETURN(object.layout,
                          WithRowShifts(object, run, stop, rows, mass_profile, report, notes));
  return absl::OkStatus();
}

}  // namespace octavo::tomography
