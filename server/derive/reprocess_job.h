#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/model/job_spec.h"

namespace octavo::derive {

/// A job that runs the spectral chain over held raw spectra, and then the operations of `spec` on
/// what the chain made. Raw spectra that were spilled are restored when the job begins. NotFound,
/// FailedPrecondition (being acquired; RECOVERED), InvalidArgument (names "reprocess.<field>").
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeReprocessWork(
    const model::ReprocessSpec& spec, const job::JobEnvironment& environment);

}  // namespace octavo::derive
