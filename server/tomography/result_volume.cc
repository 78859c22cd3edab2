#include "server/tomography/result_volume.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"

#include "gpu/array/project.h"
#include "gpu/base/status.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kMostDisplayed =
    int64_t{64} << 20;  // bytes sampled for the values to show as black and white
constexpr double kDarkPart = 0.002, kBrightPart = 0.998;  // of the pixels

model::VolumeStatus Description(const model::TomographySpec& spec, const ScannedObject& object) {
  const TomographyLayout& layout = object.layout;
  const double input_um = object.input->info().pixel_size_um;
  const std::optional<double> pixel_um = PixelUm(spec, input_um);
  const bool tries = !layout.tried().empty();
  model::VolumeStatus volume;
  volume.shape[0] = layout.slices();
  volume.shape[1] = volume.shape[2] = layout.image_size();
  volume.dtype = DType::kF32;
  volume.axes[0] = "z";
  volume.axes[1] = "y";
  volume.axes[2] = "x";
  volume.spacing_um[0] =
      tries ? spec.try_centers->step
            : pixel_um.value_or(1) * static_cast<double>(spec.preparation.config.bin_rows *
                                                         std::max<int64_t>(spec.rows.step, 1));
  volume.spacing_um[1] = volume.spacing_um[2] = SliceSpacingOf(spec, input_um).um;
  volume.spacing_assumed[0] = !pixel_um.has_value() || tries;  // centres tried are columns apart
  volume.spacing_assumed[1] = volume.spacing_assumed[2] = !pixel_um.has_value();
  volume.quantity = model::Quantity::kAttenuation;
  const auto& missing = object.missing_frames;
  volume.complete = missing.empty();
  for (const auto& [first, frames] : missing) volume.missing_frames += frames;
  volume.missing_frame_ranges.assign(
      missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  if (const auto* arrays = std::get_if<model::ProjectionArraysSpec>(&spec.input);
      arrays != nullptr && absl::StartsWith(arrays->projections, "volumes/")) {
    volume.derived_from = arrays->projections;
  }
  return volume;
}

}  // namespace

absl::Status ResultVolume::Begin(const ScannedObject& object) {
  slices_ = object.layout.slices();
  image_size_ = object.layout.image_size();
  model::VolumeStatus volume = Description(*task_.spec, object);
  if (task_.port != nullptr) volume.expected_frames = task_.port->spec().frames;
  void* images = nullptr;
  if (task_.on_disk) {
    OCTAVO_RETURN_IF_ERROR(run_.BeginStored(0, volume));
    OCTAVO_ASSIGN_OR_RETURN(images,
                            run_.Allocate(task_.slices_per_batch * object.layout.image_bytes()));
  } else {
    OCTAVO_ASSIGN_OR_RETURN(images, run_.Result(0, volume));
  }
  images_ = static_cast<float*>(images);
  mip_ = static_cast<char*>(run_.ResultMip(0, /*made=*/true));
  return absl::OkStatus();
}

absl::Status ResultVolume::Add(int64_t first, int64_t count) {
  float* const images = ImagesOf(first);
  const VolumeView view{
      .data = images, .dtype = DType::kF32, .shape = {count, image_size_, image_size_}};
  OCTAVO_RETURN_IF_ERROR(Mip(run_.stream(), run_.device(), view, Axis::kY, 0, count,
                             /*accumulate=*/std::exchange(mip_begun_, true), mip_));
  const int64_t middle = slices_ / 2;
  if (middle >= first && middle < first + count)
    OCTAVO_RETURN_IF_ERROR(LookAt(images + (middle - first) * image_size_ * image_size_));
  if (!task_.on_disk) return absl::OkStatus();
  return run_.Store(0, images, count * image_size_ * image_size_ * 4);
}

// Levels from a slice in the middle of the result.
absl::Status ResultVolume::LookAt(const float* image) {
  const int64_t size = image_size_,
                rows = std::clamp<int64_t>(kMostDisplayed / (size * 4), 1, size);
  OCTAVO_ASSIGN_OR_RETURN(const PinnedBuffer host, run_.device().AllocatePinned(rows * size * 4));
  const absl::Status copied = run_.device().CopyToHost(
      run_.stream(), host.data(), image + (size - rows) / 2 * size, rows * size * 4);
  OCTAVO_RETURN_IF_ERROR(run_.stream().Synchronize());
  OCTAVO_RETURN_IF_ERROR(copied);
  auto* const values = host.as<float>();
  const auto n = static_cast<double>(rows * size - 1);
  const auto at = [&](double part) {
    auto* const nth = values + static_cast<int64_t>(std::lround(part * n));
    std::nth_element(values, nth, values + rows * size);
    return static_cast<double>(*nth);
  };
  const double lo = at(kDarkPart), hi = at(kBrightPart);
  run_.SetDisplay(0, lo, hi > lo ? hi : lo + 1);
  return absl::OkStatus();
}

}  // namespace octavo::tomography
