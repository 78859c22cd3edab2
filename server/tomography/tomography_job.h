#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/volume/volume_store.h"

namespace octavo::tomography {

/// A reconstruction of projections of a parallel-beam scan. Opens the input and reads its metadata.
/// Errors name fields below "tomography."; those of files name the dataset.
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeTomographyWork(
    const model::TomographySpec& spec, const job::JobEnvironment& environment);

}  // namespace octavo::tomography
