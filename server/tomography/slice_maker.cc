#include "server/tomography/slice_maker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/buffer/array_input.h"

namespace octavo::tomography {
namespace {

constexpr double kNoResidual = std::numeric_limits<double>::quiet_NaN();
// Total variation is far from its minimum with a gap of a tenth of what is minimised, and with a
// change that would add up to 0.3 if as many iterations followed.
constexpr double kFarGap = 0.1, kFarChange = 0.3;

model::IterationStop StopOf(TomographyStop stop) {
  switch (stop) {
    case TomographyStop::kIterations: return model::IterationStop::kIterations;
    case TomographyStop::kChange: return model::IterationStop::kChange;
    case TomographyStop::kResidual: return model::IterationStop::kResidual;
    case TomographyStop::kCallback: return model::IterationStop::kNone;  // the job was cancelled
  }
  return model::IterationStop::kNone;
}

}  // namespace

absl::Status SliceMaker::PlanFor(const ScannedObject& object, const BatchImages& batch) {
  const bool shared = object.centers.size() == 1;
  if (reconstructor_ != nullptr && shared) return absl::OkStatus();
  const TomographyConfig config = object.layout.ReconstructFor(
      shared ? 0 : batch.first, shared ? task_.slices_per_batch : batch.count, object.centers);
  if (reconstructor_ == nullptr) OCTAVO_RETURN_IF_ERROR(run_.Charge(task_.memory.reconstruct));
  reconstructor_.reset();
  auto made = Reconstructor::Create(config, run_.device(), &tables_);
  if (!made.ok()) return AtReconstruction(made.status());
  reconstructor_ = *std::move(made);
  if (!report_.algorithm.has_value() && config.algorithm == TomographyAlgorithm::kAuto)
    run_.Log(reconstructor_->algorithm() == TomographyAlgorithm::kFourier
                 ? "algorithm AUTO: FOURIER, which is the faster one for this size"
                 : "algorithm AUTO: FBP");
  report_.algorithm = reconstructor_->algorithm();
  return absl::OkStatus();
}

absl::StatusOr<double> SliceMaker::Make(const ScannedObject& object, const BatchImages& batch) {
  OCTAVO_RETURN_IF_ERROR(PlanFor(object, batch));
  const int64_t before = report_.batches * iterations();
  std::vector<double> first_norms;
  absl::Status preview_status;
  const auto on_iteration = [&](const IterationReport& report) {
    if (stop_.stop_requested()) return false;
    if (report.iteration == 0) return true;  // between pieces of work
    double squares = 0;
    for (const double norm : report.residual_norms) squares += norm * norm;
    if (first_norms.empty()) first_norms = report.residual_norms;
    run_.Step(before + report.iteration,
              report.residual_norms.empty() ? kNoResidual : std::sqrt(squares));
    preview_status = Preview(object, batch, /*made=*/false);
    return preview_status.ok();
  };
  OCTAVO_ASSIGN_OR_RETURN(const DeviceSpan<const float> initial,
                          InitialOf(object.layout, batch.first, batch.count));
  auto result = reconstructor_->Run(
      run_.stream(), {.data = batch.sinograms, .angle_first = false, .slices = batch.count},
      initial, {batch.images, batch.count * object.layout.image_bytes() / 4}, on_iteration);
  if (stop_.stop_requested()) return absl::CancelledError("cancelled");
  if (!result.ok()) return AtReconstruction(result.status());
  OCTAVO_RETURN_IF_ERROR(preview_status);
  const double norm = Tell(batch, *result, first_norms);
  OCTAVO_RETURN_IF_ERROR(Preview(object, batch, /*made=*/true));
  return norm;
}

// `made`: the images of the batch are complete; else it is within an iteration.
absl::Status SliceMaker::Preview(const ScannedObject& object, const BatchImages& batch, bool made) {
  const TomographyLayout& layout = object.layout;
  const std::optional<WantedSlice> wanted =
      previews_.DueOf({.first = batch.first, .count = batch.count, .slices = layout.slices()});
  if (!wanted.has_value()) return absl::OkStatus();
  const int64_t at = wanted->slice - batch.first, elements = layout.image_bytes() / 4;
  if (!made) {
    OCTAVO_RETURN_IF_ERROR(
        reconstructor_->CopyImage(run_.stream(), at, {previews_.image(), elements}));
  }
  return previews_.Publish(wanted->key,
                           layout.Image(made ? batch.images + at * elements : previews_.image()),
                           SliceSpacingOf(spec_, object.input->info().pixel_size_um));
}

// The initial slices on the device; null = the algorithm's own start.
absl::StatusOr<DeviceSpan<const float>> SliceMaker::InitialOf(const TomographyLayout& layout,
                                                              int64_t first, int64_t count) {
  if (task_.initial == nullptr) return DeviceSpan<const float>();
  const int64_t bytes = count * layout.image_bytes();
  if (initial_ == nullptr) {
    OCTAVO_ASSIGN_OR_RETURN(initial_, run_.Allocate(task_.slices_per_batch * layout.image_bytes()));
    OCTAVO_ASSIGN_OR_RETURN(
        host_initial_, run_.device().AllocatePinned(task_.slices_per_batch * layout.image_bytes()));
  }
  OCTAVO_RETURN_IF_ERROR(task_.initial->ReadPlanes(first, count, host_initial_.data()));
  OCTAVO_RETURN_IF_ERROR(
      run_.device().CopyToDevice(run_.stream(), initial_, host_initial_.data(), bytes));
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  return DeviceSpan<const float>(static_cast<const float*>(initial_), bytes / 4);
}

double SliceMaker::Tell(const BatchImages& batch, const TomographyResult& result,
                        const std::vector<double>& first_norms) {
  if (!IsIterative(spec_.reconstruction.algorithm)) return kNoResidual;
  report_.stop = StopOf(result.stop);
  report_.iterations = std::max(report_.iterations, result.last.iteration);
  double squares = 0, first = 0;
  for (const double norm : result.last.residual_norms) squares += norm * norm;
  for (const double norm : first_norms) first += norm * norm;
  for (const double change : result.last.changes)
    report_.relative_change = std::fmax(report_.relative_change, change);
  TellGaps(result);
  squares_ = std::max(squares_, 0.0) + squares;
  first_squares_ += first;
  const double norm = std::sqrt(squares);
  run_.Log(absl::StrFormat("slices %d to %d: %d iterations, residual %.6g%s", batch.first,
                           batch.first + batch.count - 1, result.last.iteration, norm,
                           result.stop == TomographyStop::kChange     ? ", stopped by change"
                           : result.stop == TomographyStop::kResidual ? ", stopped by residual"
                           : result.stop == TomographyStop::kCallback ? ", cancelled"
                                                                      : ""));
  return norm;
}

void SliceMaker::Release() {
  if (reconstructor_ != nullptr) run_.Discharge(task_.memory.reconstruct);
  reconstructor_.reset();
  if (initial_ != nullptr) run_.Free(std::exchange(initial_, nullptr));
}

// How far slices of total variation are from the minimum.
void SliceMaker::TellGaps(const TomographyResult& result) {
  const IterationReport& last = result.last;
  for (size_t i = 0; i < last.variation_gaps.size(); ++i) {
    const double gap = last.objectives[i] > 0 ? last.variation_gaps[i] / last.objectives[i] : 0;
    report_.variation_gap = std::fmax(report_.variation_gap, gap);
    const bool moves = last.changes[i] * static_cast<double>(last.iteration) > kFarChange;
    far_slices_ += gap > kFarGap || moves ? 1 : 0;
    ++tv_slices_;
  }
}

void SliceMaker::Conclude() {
  if (far_slices_ > 0) {
    const bool gap = report_.variation_gap > kFarGap;
    run_.Warn(absl::StrFormat(
        "TV ended far from its minimum in %d of %d slices, after %d iterations: %s. What they show "
        "depends on the number of iterations. %s",
        far_slices_, tv_slices_, report_.iterations,
        gap ? absl::StrFormat("the smoothing that tv_weight %g asks for was not reached "
                              "(variation_gap %.2f, 0 at the minimum)",
                              spec_.reconstruction.tv_weight, report_.variation_gap)
        : std::isfinite(report_.relative_change)
            ? absl::StrFormat("they still changed by %.2g an iteration", report_.relative_change)
            : "one iteration tells nothing of the next",
        gap ? "Is tv_weight too large? It has the unit of the slices: begin with the noise of "
              "an FBP slice, or, if it is meant, give more iterations."
            : "Give more iterations, and a smaller stop_change if that ended them."));
  }
  report_.residual_norm = squares_ < 0 ? kNoResidual : std::sqrt(squares_);
  report_.relative_residual =
      first_squares_ > 0 ? std::sqrt(squares_ / first_squares_) : kNoResidual;
}

}  // namespace octavo::tomography
