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

/// The work that `spec` asks for: the one list of kinds. Pins what it reads. InvalidArgument names
/// the field, NotFound.
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeJobWork(const model::JobSpec& spec,
                                                          const job::JobEnvironment& environment);

}  // namespace octavo::engine
