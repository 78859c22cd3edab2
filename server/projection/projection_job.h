#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/job/job_environment.h"

namespace octavo::projection {

/// A projection of images or its adjoint, `spec` of `job`. Errors name fields below "projection.".
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeProjectionWork(
    const model::JobSpec& job, const model::ProjectionSpec& spec,
    const job::JobEnvironment& environment);

}  // namespace octavo::projection
