#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// A reconstruction of projections of a parallel-beam scan. Opens the input and looks at its metadata. Errors name fields below
/// "tomography."; those of files name the dataset.
absl::StatusOr<std::unique_ptr<JobWork>> MakeTomographyWork(const TomographySpec& spec, const JobEnvironment& environment);

}  // namespace octavo::engine
