#pragma once

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/tomography/layout.h"
#include "server/tomography/row_preparer.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Handles objects wider than the detector: the rays contain the part outside the field of view,
/// which would pile up at the rim of the iterations' circle. Looks at a few rows, and returns a
/// layout whose iterations have a support as wide as the object seems to be, at most
/// `widest_support`, with a warning; else the object's own layout. All slices share one support, so
/// that no result depends on the batches.
/// Filtered back projection and gridding keep their layout: a warning says that what lies outside
/// counts as air, or, over a full turn about an axis at one side, that the two halves of the turn
/// are to be joined.
absl::StatusOr<TomographyLayout> WidenedFor(const ScannedObject& object, double widest_support,
                                            job::JobRun& run, RowPreparer& rows);

}  // namespace octavo::tomography
