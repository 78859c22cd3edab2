#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/model/job_spec.h"

namespace octavo::volume_import {

/// A job that makes a held volume, or a buffer (ImportSpec::volume.array), of a file or folder: the
/// work `spec` of `job`. Opens it and reads its description now.
/// Errors name "volume_import.<field>": as ConfinePath, OpenVolumeInput and InputVolume::Make;
/// ResourceExhausted (HOST_MEMORY) if reading it takes more host memory than there is for it.
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeImportWork(
    const model::JobSpec& job, const model::ImportSpec& spec,
    const job::JobEnvironment& environment);

}  // namespace octavo::volume_import
