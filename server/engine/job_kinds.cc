#include "server/engine/job_kinds.h"

#include "gpu/base/status.h"
#include "server/derive/reprocess_job.h"
#include "server/projection/projection_job.h"
#include "server/raw_jobs/raw_jobs.h"
#include "server/tomography/tomography_job.h"
#include "server/volume_import/import_job.h"

namespace octavo::engine {
namespace {

// An overload for each kind.
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec&,
                                                   const model::ReprocessSpec& spec,
                                                   const job::JobEnvironment& e) {
  return derive::MakeReprocessWork(spec, e);
}
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec&,
                                                   const model::DispersionAutofocusSpec& spec,
                                                   const job::JobEnvironment& e) {
  return raw_jobs::MakeDispersionAutofocusWork(spec, e);
}
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec&,
                                                   const model::KCalibrationSpec& spec,
                                                   const job::JobEnvironment& e) {
  return raw_jobs::MakeKCalibrationWork(spec, e);
}
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec&,
                                                   const model::TomographySpec& spec,
                                                   const job::JobEnvironment& e) {
  return tomography::MakeTomographyWork(spec, e);
}
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec& job,
                                                   const model::ImportSpec& spec,
                                                   const job::JobEnvironment& e) {
  return volume_import::MakeImportWork(job, spec, e);
}
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec& job,
                                                   const model::ProjectionSpec& spec,
                                                   const job::JobEnvironment& e) {
  return projection::MakeProjectionWork(job, spec, e);
}
absl::StatusOr<std::unique_ptr<job::JobWork>> Make(const model::JobSpec&, std::monostate,
                                                   const job::JobEnvironment&) {
  return InvalidField("work", "is not given");
}

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeJobWork(const model::JobSpec& spec,
                                                          const job::JobEnvironment& environment) {
  return std::visit([&](const auto& work) { return Make(spec, work, environment); }, spec.work);
}

}  // namespace octavo::engine
