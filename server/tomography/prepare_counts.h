#pragma once

#include "gpu/tomography/preprocess.h"
#include "server/model/tomography_spec.h"

namespace octavo::tomography {

/// Adds what the preparation of some rows counted.
inline void Count(const PrepareCounts& counts, model::TomographyReport& report) {
  report.outliers += counts.outliers;
  report.not_finite += counts.not_finite;
  report.floored += counts.floored;
  report.unlit += counts.unlit;
}
inline void ForgetCounts(model::TomographyReport& report) {
  report.outliers = report.not_finite = report.floored = report.unlit = 0;
}

}  // namespace octavo::tomography
