#pragma once

#include <limits>

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
/// What belongs to one volume of a series, before the next one.
inline void ForgetVolume(model::TomographyReport& report) {
  ForgetCounts(report);
  report.batches = report.iterations = report.clipped_below = report.clipped_above = 0;
  report.relative_change = report.variation_gap = std::numeric_limits<double>::quiet_NaN();
}

}  // namespace octavo::tomography
