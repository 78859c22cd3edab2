#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/volume/volume_store.h"

// The kinds of jobs that look at held raw spectra.
namespace octavo::engine {

/// Pins the raw spectra `volume`. NotFound, FailedPrecondition (being acquired), InvalidArgument if it holds something else; errors
/// call the field "<work>.volume".
absl::StatusOr<PinnedVolume> PinRaw(VolumeStore& volumes, const std::string& work, const std::string& volume);

/// Where the records that became A-scans lie in the volume's memory, in the order they came: positions in records.
std::vector<int64_t> PlacedRecords(const RawRecords& records);

absl::StatusOr<std::unique_ptr<JobWork>> MakeReprocessWork(const ReprocessSpec& spec, const JobEnvironment& environment);
absl::StatusOr<std::unique_ptr<JobWork>> MakeDispersionAutofocusWork(const DispersionAutofocusSpec& spec, const JobEnvironment& environment);
absl::StatusOr<std::unique_ptr<JobWork>> MakeKCalibrationWork(const KCalibrationSpec& spec, const JobEnvironment& environment);

/// Runs the chain of `scan` over `raw` into result 0 of the plan, which must be that of AddReprocess. The stage is [begin, end] of the job.
absl::Status RunReprocess(JobRun& run, std::stop_token stop, const PinnedVolume& raw, const std::shared_ptr<const ResolvedScan>& scan, double begin,
                          double end);
/// Adds what RunReprocess needs to a plan.
void AddReprocess(const ResolvedScan& scan, Device& device, JobPlan* plan);

}  // namespace octavo::engine
