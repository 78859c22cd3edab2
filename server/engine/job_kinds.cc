#include "server/engine/job_kinds.h"

#include "gpu/base/status.h"

namespace octavo::engine {

absl::StatusOr<std::unique_ptr<JobWork>> MakeJobWork(const JobSpec& spec, const JobEnvironment& environment) {
  (void)spec;
  (void)environment;
  return absl::UnimplementedError("this kind of job comes with the next commits");
}

}  // namespace octavo::engine
