#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/processing/raw_records.h"
#include "server/processing/replay_records.h"
#include "server/raw_jobs/raw_jobs.h"

namespace octavo::raw_jobs {
namespace {

constexpr int64_t kBlocksAhead = 8;  // blocks enqueued between checks of `stop`

class ReprocessWork final : public job::JobWork {
 public:
  ReprocessWork(volume::VolumeHold raw, model::ResolvedScan scan)
      : raw_(std::move(raw)), scan_(std::make_shared<const model::ResolvedScan>(std::move(scan))) {}

  job::JobKind kind() const override { return job::JobKind::kReprocess; }
  int home_device() const override { return raw_.device; }
  absl::StatusOr<job::JobPlan> Plan(Device& device) const override {
    job::JobPlan plan;
    AddReprocess(*scan_, device, &plan);
    plan.text = DescribeChain(scan_->chain);
    plan.warnings = scan_->warnings;
    return plan;
  }
  std::string Parameters() const override {
    return nlohmann::json{{"volume", raw_.status.name}}.dump();
  }
  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    return RunReprocess(run, stop, raw_, scan_, 0, 1);
  }

 private:
  const volume::VolumeHold raw_;
  const std::shared_ptr<const model::ResolvedScan> scan_;
};

}  // namespace

absl::StatusOr<volume::VolumeHold> PinRaw(volume::VolumeStore& volumes, const std::string& work,
                                          const std::string& volume) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold pinned,
                          volumes.Hold(volume, volume::HoldKind::kDevice));
  if (pinned.status.is_raw && pinned.status.recovered)
    return processing::RawOfAnEarlierProcess(pinned.status);
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

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeReprocessWork(
    const model::ReprocessSpec& spec, const job::JobEnvironment& environment) {
  OCTAVO_ASSIGN_OR_RETURN(volume::VolumeHold raw,
                          PinRaw(*environment.volumes, "reprocess", spec.volume));
  auto scan = processing::ResolveReprocess(raw.status, spec.processing);
  if (!scan.ok()) return base::AtField("reprocess.", scan.status());
  return std::make_unique<ReprocessWork>(std::move(raw), *std::move(scan));
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
  Event passed[2];
  for (Event& event : passed) {
    OCTAVO_ASSIGN_OR_RETURN(event, device.NewEvent());
  }
  const auto on_block = [&](int64_t done) -> absl::Status {
    if (stop.stop_requested()) return absl::CancelledError("cancelled");
    if (done == 0 || done % kBlocksAhead != 0) return absl::OkStatus();
    Event& event = passed[done / kBlocksAhead % 2];
    OCTAVO_RETURN_IF_ERROR(event.Synchronize());  // of twice as many blocks before
    OCTAVO_RETURN_IF_ERROR(event.Record(run.stream()));
    run.Step(std::max<int64_t>(0, done - 2 * kBlocksAhead),
             std::numeric_limits<double>::quiet_NaN());
    return absl::OkStatus();
  };
  OCTAVO_RETURN_IF_ERROR(reprocessor->Run(
      run.stream(), {.volume = volume, .mip = run.ResultMip(0, /*made=*/true)}, on_block));
  model::VolumeStatus counted;
  OCTAVO_RETURN_IF_ERROR(reprocessor->ReadClipped(run.stream(), &counted));
  run.SetClipped(0, counted.clipped_below, counted.clipped_above);
  run.Step(reprocessor->blocks(), std::numeric_limits<double>::quiet_NaN());
  return absl::OkStatus();
}

}  // namespace octavo::raw_jobs
