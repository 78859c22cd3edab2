#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "gpu/device/device.h"
#include "server/job/job.h"
#include "server/job/job_environment.h"
#include "server/volume/volume_store.h"

// The kinds of jobs that measure held raw spectra (derive/reprocess_job.h makes volumes of them).
namespace octavo::raw_jobs {

/// Pins the raw spectra `volume`. NotFound, FailedPrecondition (being acquired), InvalidArgument if
/// it holds something else; errors call the field "<work>.volume".
absl::StatusOr<volume::VolumeHold> PinRaw(volume::VolumeStore& volumes, const std::string& work,
                                          const std::string& volume);

/// Positions, in records, of the A-scans' records in the volume's memory, in the order of
/// acquisition.
std::vector<int64_t> PlacedRecords(const processing::RawRecords& records);

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeDispersionAutofocusWork(
    const model::DispersionAutofocusSpec& spec, const job::JobEnvironment& environment);
absl::StatusOr<std::unique_ptr<job::JobWork>> MakeKCalibrationWork(
    const model::KCalibrationSpec& spec, const job::JobEnvironment& environment);

/// Runs the chain of `scan` over `raw` into result 0 of the plan, which must be that of
/// AddReprocess. The stage is [begin, end] of the job.
absl::Status RunReprocess(job::JobRun& run, std::stop_token stop, const volume::VolumeHold& raw,
                          const std::shared_ptr<const model::ResolvedScan>& scan, double begin,
                          double end);
/// Adds the needs of RunReprocess to a plan.
void AddReprocess(const model::ResolvedScan& scan, Device& device, job::JobPlan* plan);

}  // namespace octavo::raw_jobs
