#include "server/tomography/result_volume.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "gpu/array/project.h"
#include "gpu/array/quantise.h"
#include "gpu/base/status.h"
#include "server/job/display_range.h"
#include "server/tomography/half_turn.h"
#include "server/tomography/volume_series.h"

namespace octavo::tomography {
namespace {

constexpr double kManyClipped = 0.02;  // of the voxels

void NoteMissing(const std::vector<std::pair<int64_t, int64_t>>& missing,
                 model::VolumeStatus* volume) {
  volume->complete = missing.empty();
  for (const auto& [first, frames] : missing) volume->missing_frames += frames;
  volume->missing_frame_ranges.assign(
      missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
}

model::Quantity QuantityOf(const model::TomographySpec& spec) {
  if (!spec.makes_sinograms()) return model::Quantity::kAttenuation;
  return spec.preparation.integrals() ? model::Quantity::kLineIntegral
                                      : model::Quantity::kTransmission;
}

}  // namespace

model::VolumeStatus DescribeResult(const model::TomographySpec& spec,
                                   const TomographyLayout& layout, double input_um) {
  const std::optional<double> pixel_um = PixelUm(spec, input_um);
  const bool tries = !layout.tried().empty();
  model::VolumeStatus volume;
  volume.shape[0] = layout.slices();
  volume.shape[1] = layout.image_rows();
  volume.shape[2] = layout.image_columns();
  volume.dtype = spec.samples.type;
  volume.axes[0] = "z";
  volume.axes[1] = "y";
  volume.axes[2] = "x";
  volume.spacing_um[0] =
      tries ? spec.try_centers->step
            : pixel_um.value_or(1) * static_cast<double>(spec.preparation.config.bin_rows *
                                                         std::max<int64_t>(spec.rows.step, 1));
  const SliceSpacing spacing = SliceSpacingOf(spec, input_um);
  volume.spacing_um[1] = spacing.rows.um;
  volume.spacing_um[2] = spacing.columns.um;
  volume.spacing_assumed[0] = !pixel_um.has_value() || tries;  // centres tried are columns apart
  volume.spacing_assumed[1] = spacing.rows.assumed;
  volume.spacing_assumed[2] = spacing.columns.assumed;
  volume.quantity = QuantityOf(spec);
  if (const auto* arrays = std::get_if<model::ProjectionArraysSpec>(&spec.input);
      arrays != nullptr && absl::StartsWith(arrays->projections, "volumes/")) {
    volume.derived_from = arrays->projections;
  }
  return volume;
}

absl::Status ResultVolume::Begin(int64_t index, const ScannedObject& object,
                                 const ValueWindow& window) {
  const TomographyLayout& layout = object.layout;
  index_ = static_cast<size_t>(index);
  slices_ = layout.slices();
  image_rows_ = layout.image_rows();
  image_columns_ = layout.image_columns();
  image_voxels_ = layout.image_voxels();
  window_ = window;
  model::VolumeStatus volume =
      DescribeResult(*task_.spec, layout, object.input->info().pixel_size_um);
  NoteMissing(object.missing_frames, &volume);
  volume.has_levels = task_.spec->samples.windowed();
  volume.level_lo = static_cast<float>(window.low);
  volume.level_hi = static_cast<float>(window.high);
  if (task_.port != nullptr) volume.expected_frames = task_.port->spec().frames;
  volume.index = index;
  volume.acquired_begin = object.begun;
  volume.acquired_end = object.ended;
  SetLabels(*task_.spec, object.input->info(), index, &volume);
  if (object.half_turn.has_value())
    SetHalfTurnLabels(*object.half_turn, layout.frames(), object.input->info(), &volume);
  void* result = nullptr;
  if (task_.on_disk) {
    OCTAVO_RETURN_IF_ERROR(run_.BeginStored(index_, volume));
  } else {
    OCTAVO_ASSIGN_OR_RETURN(result, run_.Result(index_, volume));
  }
  committed_ = !task_.on_disk && run_.MakesInOrder(index_);
  OCTAVO_RETURN_IF_ERROR(AllocateScratch(layout));
  images_ = static_cast<float*>(scratch_images_ != nullptr ? scratch_images_ : result);
  stored_ = static_cast<char*>(scratch_stored_ != nullptr                   ? scratch_stored_
                               : scratch_images_ != nullptr && !converted() ? scratch_images_
                                                                            : result);
  if (clipped_ != nullptr)
    OCTAVO_RETURN_IF_ERROR(run_.device().Fill(run_.stream(), clipped_, kCountBytes, 0));
  mip_ = static_cast<char*>(run_.ResultMip(index_, /*made=*/true));
  mip_begun_ = false;
  return absl::OkStatus();
}

absl::Status ResultVolume::AllocateScratch(const TomographyLayout& layout) {
  if (std::exchange(has_scratch_, true)) return absl::OkStatus();
  if (task_.on_disk || converted()) {
    OCTAVO_ASSIGN_OR_RETURN(scratch_images_,
                            run_.Allocate(task_.slices_per_batch * layout.image_bytes()));
  }
  if (!converted()) return absl::OkStatus();
  if (task_.on_disk) {
    OCTAVO_ASSIGN_OR_RETURN(scratch_stored_,
                            run_.Allocate(task_.slices_per_batch * layout.stored_image_bytes()));
  }
  OCTAVO_ASSIGN_OR_RETURN(void* const counts, run_.Allocate(kCountBytes));
  clipped_ = static_cast<uint64_t*>(counts);
  return absl::OkStatus();
}

absl::StatusOr<char*> ResultVolume::Stored(int64_t first, int64_t count) {
  const DType type = task_.spec->samples.type;
  char* const stored = stored_ + (task_.on_disk ? 0 : first * image_voxels_ * SizeOf(type));
  if (converted()) {
    OCTAVO_RETURN_IF_ERROR(
        Quantise(run_.stream(), run_.device(), {.out = type, .lo = window_.low, .hi = window_.high},
                 {ImagesOf(first), count * image_voxels_}, stored, {clipped_, 2}));
  }
  return stored;
}

absl::Status ResultVolume::Add(int64_t first, int64_t count) {
  const DType type = task_.spec->samples.type;
  OCTAVO_ASSIGN_OR_RETURN(char* const stored, Stored(first, count));
  const VolumeView view{
      .data = stored, .dtype = type, .shape = {count, image_rows_, image_columns_}};
  OCTAVO_RETURN_IF_ERROR(Mip(run_.stream(), run_.device(), view, Axis::kY, 0, count,
                             /*accumulate=*/std::exchange(mip_begun_, true), mip_));
  const int64_t middle = slices_ / 2;
  if (middle >= first && middle < first + count)
    OCTAVO_RETURN_IF_ERROR(LookAt(ImagesOf(first) + (middle - first) * image_voxels_));
  if (committed_) return run_.Made(index_, (first + count) * image_voxels_ * SizeOf(type));
  if (!task_.on_disk) return absl::OkStatus();
  return run_.Store(index_, stored, count * image_voxels_ * SizeOf(type));
}

absl::Status ResultVolume::Conclude(model::TomographyReport& report) {
  report.low = window_.low;
  report.high = window_.high;
  if (clipped_ == nullptr) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run_.device().AllocatePinned(kCountBytes));
  const absl::Status copied =
      run_.device().CopyToHost(run_.stream(), host.data(), clipped_, 2 * sizeof(uint64_t));
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  OCTAVO_RETURN_IF_ERROR(copied);
  report.clipped_below = static_cast<int64_t>(host.as<uint64_t>()[0]);
  report.clipped_above = static_cast<int64_t>(host.as<uint64_t>()[1]);
  run_.SetClipped(index_, report.clipped_below, report.clipped_above);
  const double voxels = static_cast<double>(slices_) * static_cast<double>(image_voxels_),
               part = static_cast<double>(report.clipped_below + report.clipped_above) / voxels;
  if (part > kManyClipped && !std::exchange(told_clipped_, true)) {
    run_.Warn(absl::StrFormat(
        "%s%.1f %% of the voxels were clipped, %d below and %d above %s: give a wider window "
        "(samples.low, samples.high), or another type.",
        task_.spec->series.has_value() ? absl::StrFormat("Volume %d of the series: ", index_) : "",
        100 * part, report.clipped_below, report.clipped_above,
        task_.spec->samples.windowed()
            ? absl::StrFormat("the window from %g to %g", window_.low, window_.high)
            : "what F16 can hold"));
  }
  return absl::OkStatus();
}

// Display levels from a slice in the middle of the result.
absl::Status ResultVolume::LookAt(const float* image) {
  OCTAVO_ASSIGN_OR_RETURN(const auto range,
                          job::FindDisplayRange(run_, image, image_rows_, image_columns_));
  if (range.not_finite > 0) {
    run_.Warn(absl::StrFormat(
        "%d of %d values in the middle of the result are NaN or infinite: values of the input were "
        "too large for them.",
        range.not_finite, range.looked_at));
  }
  double lo = range.lo, hi = range.hi;
  const model::ResultSamplesSpec& samples = task_.spec->samples;
  if (samples.windowed()) {
    // Display levels are stored numbers.
    const auto top = static_cast<double>(HighestOf(samples.type));
    const auto number = [&](double value) {
      return std::clamp((value - window_.low) * top / (window_.high - window_.low), 0.0, top);
    };
    lo = number(lo);
    hi = number(hi);
    if (!(lo < hi)) lo = 0, hi = top;
  }
  run_.SetDisplay(index_, lo, hi > lo ? hi : lo + 1);
  return absl::OkStatus();
}

}  // namespace octavo::tomography
