#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "server/engine/job_kinds.h"
#include "server/job/job.h"

namespace octavo::engine {

/// A reconstruction of projections of a parallel-beam scan. Opens the input and looks at its metadata. Errors name fields below
/// "tomography."; those of files name the dataset.
absl::StatusOr<std::unique_ptr<JobWork>> MakeTomographyWork(const TomographySpec& spec, const JobEnvironment& environment);

}  // namespace octavo::engine
