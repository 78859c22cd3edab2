#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/job/block_progress.h"
#include "server/processing/raw_records.h"
#include "server/processing/replay_records.h"
#include "server/raw_jobs/raw_jobs.h"

namespace octavo::raw_jobs {

absl::StatusOr<volume::VolumeHold> PinRaw(volume::VolumeStore& volumes, const std::string& work,
                                          const std::string& volume) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                          volumes.Hold(volume, volume::HoldKind::kDevice));
  if (pinned.status.is_raw && pinned.status.recovered)
    return processing::RawOfAnEarlierProcess(pinned.status, work + ".volume");
  if (pinned.status.raw == nullptr || pinned.status.origin == nullptr) {
    return InvalidField(work + ".volume",
                        absl::StrCat("is ", volume,
                                     ", which holds no raw spectra; scan with retention.hold_raw "
                                     "and name the raw volume (Volume.raw)"));
  }
  return pinned;
}

std::vector<int64_t> PlacedRecords(const processing::RawRecords& records) {
  std::vector<int64_t> placed;
  for (const auto& run : records.came) {
    for (int64_t r = run.first; r < std::min(run.first + run.records, records.active_records); ++r)
      placed.push_back(r);
  }
  return placed;
}

void AddReprocess(const model::ResolvedScan& scan, Device& device, job::JobPlan* plan) {
  plan->results.push_back(
      {.bytes = scan.volume_bytes,
       .mip_bytes = scan.shape[0] * scan.shape[1] * SizeOf(ProjectionOf(scan.chain.output))});
  plan->workspace_bytes =
      std::max(plan->workspace_bytes, processing::Reprocessor::DeviceBytes(scan, device));
  std::copy(scan.shape, scan.shape + 3, plan->view_extents);
}

absl::Status RunReprocess(job::JobRun& run, std::stop_token stop, const volume::VolumeHold& raw,
                          const std::shared_ptr<const model::ResolvedScan>& scan, double begin,
                          double end) {
  Device& device = run.device();
  OCTAVO_RETURN_IF_ERROR(run.Charge(processing::Reprocessor::DeviceBytes(*scan, device)));
  OCTAVO_ASSIGN_OR_RETURN(auto created,
                          processing::Reprocessor::Create(*scan, raw, device, run.stream()));
  const std::shared_ptr<processing::Reprocessor> reprocessor = std::move(created);
  run.Keep(reprocessor);
  OCTAVO_ASSIGN_OR_RETURN(void* const volume,
                          run.Result(0, processing::DescribeReprocessed(raw.status, scan)));
  run.Stage(job::JobStage::kReprocess, reprocessor->blocks(), begin, end);
  OCTAVO_ASSIGN_OR_RETURN(const auto progress, job::BlockProgress::Create(run, stop));
  OCTAVO_RETURN_IF_ERROR(
      reprocessor->Run(run.stream(), {.volume = volume, .mip = run.ResultMip(0, /*made=*/true)},
                       [&](int64_t done) { return progress->OnBlock(done); }));
  model::VolumeStatus counted;
  OCTAVO_RETURN_IF_ERROR(reprocessor->ReadClipped(run.stream(), &counted));
  run.SetClipped(0, counted.clipped_below, counted.clipped_above);
  run.Step(reprocessor->blocks(), std::numeric_limits<double>::quiet_NaN());
  return absl::OkStatus();
}

}  // namespace octavo::raw_jobs
