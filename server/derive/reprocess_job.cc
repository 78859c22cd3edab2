#include "server/derive/reprocess_job.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/derive/derivation_plan.h"
#include "server/derive/derivation_run.h"
#include "server/job/block_progress.h"
#include "server/processing/replay_records.h"
#include "server/volume/spiller.h"

namespace octavo::derive {
namespace {

constexpr double kChainShare = 0.9;  // of the work, if operations follow
constexpr size_t kMostOperations = 7;

/// The raw spectra of a job while it waits and runs.
class RawInput {
 public:
  /// Errors call the field "reprocess.volume".
  static absl::StatusOr<RawInput> Find(const job::JobEnvironment& environment,
                                       const std::string& name) {
    RawInput input(environment);
    auto hold = environment.volumes->Hold(name, volume::HoldKind::kDevice);
    if (hold.ok()) {
      input.status_ = hold->status;
      input.device_ = hold->device;
      input.hold_ = *std::move(hold);
    } else if (InfoOf(hold.status()).reason == Reason::kSpilled && environment.spiller != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(input.status_, environment.volumes->Get(name));
      input.device_ = base::DeviceIndex(input.status_.device).value_or(0);
    } else {
      return hold.status();
    }
    if (input.status_.is_raw && input.status_.recovered)
      return processing::RawOfAnEarlierProcess(input.status_, "reprocess.volume");
    if (input.status_.raw == nullptr || input.status_.origin == nullptr) {
      return InvalidField("reprocess.volume",
                          absl::StrCat("is ", name,
                                       ", which holds no raw spectra; scan with retention.hold_raw "
                                       "and name the raw volume (Volume.raw)"));
    }
    return input;
  }

  const model::VolumeStatus& status() const { return status_; }
  int device() const { return device_; }
  /// Restores the volume if it was spilled: other jobs use the device meanwhile.
  absl::StatusOr<volume::VolumeHold> OnDevice(job::JobRun& run, std::stop_token stop) {
    if (!hold_.has_value()) {
      OCTAVO_RETURN_IF_ERROR(run.WithoutDevice([this] { return Restore(); }, std::move(stop)));
    }
    return *hold_;
  }

 private:
  explicit RawInput(const job::JobEnvironment& environment)
      : volumes_(environment.volumes), spiller_(environment.spiller) {}
  absl::Status Restore() {
    OCTAVO_RETURN_IF_ERROR(spiller_->RestoreNow(status_.name).status());
    OCTAVO_ASSIGN_OR_RETURN(hold_, volumes_->Hold(status_.name, volume::HoldKind::kDevice));
    return absl::OkStatus();
  }

  volume::VolumeStore* volumes_;
  volume::Spiller* spiller_;
  model::VolumeStatus status_;
  int device_ = 0;
  std::optional<volume::VolumeHold> hold_;  // none: it was spilled
};

class ReprocessWork final : public job::JobWork {
 public:
  ReprocessWork(RawInput raw, std::shared_ptr<const model::ResolvedScan> scan,
                model::VolumeStatus reprocessed, std::optional<DerivationPlan> following)
      : raw_(std::move(raw)),
        scan_(std::move(scan)),
        reprocessed_(std::move(reprocessed)),
        following_(std::move(following)) {}

  job::JobKind kind() const override { return job::JobKind::kReprocess; }
  int home_device() const override { return raw_.device(); }

  absl::StatusOr<job::JobPlan> Plan(Device& device) const override {
    job::JobPlan plan;
    const model::VolumeStatus& made = result();
    job::JobPlan::Result& result = plan.results.emplace_back();
    result.bytes = made.bytes;
    if (HasAscans()) {
      result.mip_bytes = made.shape[0] * made.shape[1] * SizeOf(ProjectionOf(made.dtype));
      std::copy(made.shape, made.shape + 3, plan.view_extents);
    }
    plan.workspace_bytes = processing::Reprocessor::DeviceBytes(*scan_, device);
    plan.text = DescribeChain(scan_->chain);
    plan.warnings = scan_->warnings;
    if (following_.has_value()) {
      OCTAVO_ASSIGN_OR_RETURN(const int64_t between, BytesBetween(*following_, device));
      plan.workspace_bytes += AlignedBytes(reprocessed_.bytes) + between;
      for (size_t i = reprocessed_.operations.size(); i < made.operations.size(); ++i)
        absl::StrAppend(&plan.text, "then: ", made.operations[i], "\n");
    }
    return plan;
  }

  std::string Parameters() const override {
    nlohmann::json parameters{{"volume", raw_.status().name}};
    if (following_.has_value()) parameters["operations"] = result().operations;
    return parameters.dump();
  }

  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    OCTAVO_ASSIGN_OR_RETURN(const volume::VolumeHold raw, raw_.OnDevice(run, stop));
    OCTAVO_ASSIGN_OR_RETURN(void* const out, run.Result(0, result()));
    void* chain_out = out;
    if (following_.has_value()) {
      OCTAVO_ASSIGN_OR_RETURN(chain_out, run.Allocate(reprocessed_.bytes));
    }
    OCTAVO_RETURN_IF_ERROR(RunChain(run, stop, raw, chain_out));
    return following_.has_value() ? RunOperations(run, stop, chain_out, out) : absl::OkStatus();
  }

 private:
  const model::VolumeStatus& result() const {
    return following_.has_value() ? following_->result : reprocessed_;
  }
  /// Whether the result is one of A-scans, of which subscribers see pictures.
  bool HasAscans() const {
    return !following_.has_value() ||
           std::none_of(following_->steps.begin(), following_->steps.end(),
                        [](const DerivationStep& step) { return step.chain != nullptr; });
  }

  absl::Status RunChain(job::JobRun& run, const std::stop_token& stop,
                        const volume::VolumeHold& raw, void* out) {
    Device& device = run.device();
    OCTAVO_RETURN_IF_ERROR(run.Charge(processing::Reprocessor::DeviceBytes(*scan_, device)));
    OCTAVO_ASSIGN_OR_RETURN(auto created,
                            processing::Reprocessor::Create(*scan_, raw, device, run.stream()));
    const std::shared_ptr<processing::Reprocessor> reprocessor = std::move(created);
    run.Keep(reprocessor);
    run.Stage(job::JobStage::kReprocess, reprocessor->blocks(), 0,
              following_.has_value() ? kChainShare : 1);
    OCTAVO_ASSIGN_OR_RETURN(const auto progress, job::BlockProgress::Create(run, stop));
    void* const mip = following_.has_value() ? nullptr : run.ResultMip(0, /*made=*/true);
    OCTAVO_RETURN_IF_ERROR(reprocessor->Run(run.stream(), {.volume = out, .mip = mip},
                                            [&](int64_t done) { return progress->OnBlock(done); }));
    model::VolumeStatus counted;
    OCTAVO_RETURN_IF_ERROR(reprocessor->ReadClipped(run.stream(), &counted));
    // The result of further operations has no levels to clip at.
    if (!following_.has_value()) run.SetClipped(0, counted.clipped_below, counted.clipped_above);
    run.Step(reprocessor->blocks(), std::numeric_limits<double>::quiet_NaN());
    return absl::OkStatus();
  }

  absl::Status RunOperations(job::JobRun& run, const std::stop_token& stop, const void* in,
                             void* out) {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t between, BytesBetween(*following_, run.device()));
    OCTAVO_RETURN_IF_ERROR(run.Charge(between));
    const int64_t steps = std::ssize(following_->steps);
    run.Stage(job::JobStage::kDerive, steps, kChainShare, 1);
    OCTAVO_ASSIGN_OR_RETURN(const auto derivation,
                            DerivationRun::Create(*following_, run.device()));
    int64_t begun = 0;
    const model::WorkControl control{.stop = stop, .report = [&](const model::WorkProgress&) {
                                       if (begun > 0)
                                         run.Step(begun, std::numeric_limits<double>::quiet_NaN());
                                       ++begun;
                                     }};
    OCTAVO_RETURN_IF_ERROR(derivation->Run(in, out, control));
    run.Step(steps, std::numeric_limits<double>::quiet_NaN());
    return absl::OkStatus();
  }

  RawInput raw_;
  const std::shared_ptr<const model::ResolvedScan> scan_;
  const model::VolumeStatus reprocessed_;          // what the chain makes
  const std::optional<DerivationPlan> following_;  // on that
};

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeReprocessWork(
    const model::ReprocessSpec& spec, const job::JobEnvironment& environment) {
  if (spec.operations.size() > kMostOperations) {
    return InvalidField("reprocess.operations",
                        absl::StrCat("has ", spec.operations.size(), " operations; allowed 0 to ",
                                     kMostOperations));
  }
  OCTAVO_ASSIGN_OR_RETURN(RawInput raw, RawInput::Find(environment, spec.volume));
  auto resolved = processing::ResolveReprocess(raw.status(), spec.processing);
  if (!resolved.ok()) return base::AtField("reprocess.", resolved.status());
  const auto scan = std::make_shared<const model::ResolvedScan>(*std::move(resolved));
  model::VolumeStatus reprocessed = processing::DescribeReprocessed(raw.status(), scan);
  std::optional<DerivationPlan> following;
  if (!spec.operations.empty()) {
    auto planned = PlanDerivation(reprocessed, spec.operations);
    if (!planned.ok()) return base::AtField("reprocess.", planned.status());
    following = *std::move(planned);
  }
  return std::make_unique<ReprocessWork>(std::move(raw), scan, std::move(reprocessed),
                                         std::move(following));
}

}  // namespace octavo::derive
