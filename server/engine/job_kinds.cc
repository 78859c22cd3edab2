#include "server/engine/job_kinds.h"

#include "gpu/base/status.h"
#include "server/raw_jobs/raw_jobs.h"
#include "server/tomography/tomography_job.h"

namespace octavo::engine {
namespace {

// An overload for each kind.
absl::StatusOr<std::unique_ptr<JobWork>> Make(const ReprocessSpec& spec, const JobEnvironment& e) { return MakeReprocessWork(spec, e); }
absl::StatusOr<std::unique_ptr<JobWork>> Make(const DispersionAutofocusSpec& spec, const JobEnvironment& e) {
  return MakeDispersionAutofocusWork(spec, e);
}
absl::StatusOr<std::unique_ptr<JobWork>> Make(const KCalibrationSpec& spec, const JobEnvironment& e) { return MakeKCalibrationWork(spec, e); }
absl::StatusOr<std::unique_ptr<JobWork>> Make(const TomographySpec& spec, const JobEnvironment& e) { return MakeTomographyWork(spec, e); }
absl::StatusOr<std::unique_ptr<JobWork>> Make(std::monostate, const JobEnvironment&) { return InvalidField("work", "is not given"); }

}  // namespace

absl::StatusOr<std::unique_ptr<JobWork>> MakeJobWork(const JobSpec& spec, const JobEnvironment& environment) {
  return std::visit([&](const auto& work) { return Make(work, environment); }, spec.work);
}

}  // namespace octavo::engine
