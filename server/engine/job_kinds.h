#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu/device.h"
#include "server/engine/job.h"
#include "server/engine/volume_store.h"

namespace octavo::engine {

/// What the kinds of jobs need of the engine around them. All must outlive the jobs.
struct JobEnvironment {
  VolumeStore* volumes = nullptr;
};

/// The work that `spec` asks for: the one list of kinds. Pins what it reads. InvalidArgument names the field, NotFound.
absl::StatusOr<std::unique_ptr<JobWork>> MakeJobWork(const JobSpec& spec, const JobEnvironment& environment);

}  // namespace octavo::engine
