#pragma once

#include <stop_token>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/model/tomography_spec.h"
#include "server/tomography/job_notes.h"
#include "server/tomography/layout.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

/// Device memory of WithDynamicFlats; 0 without dynamic flats. It is free again afterwards.
absl::StatusOr<int64_t> FlatFinderBytes(const TomographyLayout& layout, Device& device);

/// Host memory of WithDynamicFlats: the flat fields, the frames that are read at a time, and the
/// weights of all projections; 0 without dynamic flats.
absl::StatusOr<int64_t> FlatFinderHostBytes(const TomographyLayout& layout);

/// The layout of the object with the open beam behind each of its projections, where the request
/// asks for one that changes (preparation.dynamic_flats); else as it is. Reads some rows of all
/// projections and all fields, tells the report and `notes`, with a warning where the flat fields
/// do not explain the beam. Used by the job's thread only; waits for the stream.
absl::StatusOr<TomographyLayout> WithDynamicFlats(const ScannedObject& object, job::JobRun& run,
                                                  const std::stop_token& stop,
                                                  model::TomographyReport& report, JobNotes& notes);

}  // namespace octavo::tomography
