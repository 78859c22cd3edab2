#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/volume/volume_store.h"

namespace octavo::engine {

/// Makes the work that `spec` requests; the only list of job kinds. Pins the inputs of the work.
/// InvalidArgument names the field; NotFound.
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeJobWork(const model::JobSpec& spec,
                                                          const job::JobEnvironment& environment);

}  // namespace octavo::engine
