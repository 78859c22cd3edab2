// The previews of a tomography job: its levels, its slices as they converge, and an FBP of the
// projections so far.

#include <algorithm>
#include <cmath>

#include "gpu/base/status.h"
#include "server/tomography/run.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kMostDisplayed =
    int64_t{64} << 20;  // bytes sampled for the values to show as black and white
constexpr double kDarkPart = 0.002, kBrightPart = 0.998;  // of the pixels

}  // namespace

// Levels from a slice in the middle of the result.
absl::Status TomographyRunner::LookAt(const float* image) {
  const int64_t size = layout_.image_size(),
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

// -- previews: slices

// A slice in [first, first + count) with a subscriber.
std::optional<std::pair<publish::TopicKey, int64_t>> TomographyRunner::WantedSlice(int64_t first,
                                                                                   int64_t count) {
  for (const publish::Publisher::Wanted& wanted : run_.Wanted()) {
    if (!wanted.previews || wanted.key.product != model::Product::kBscan ||
        wanted.key.axis != model::FrameAxis::kZ)
      continue;
    const int64_t slice =
        wanted.key.plane_index < 0 ? layout_.slices() / 2 : wanted.key.plane_index;
    if (slice >= first && slice < first + count) return std::pair{wanted.key, slice};
  }
  return std::nullopt;
}

// `images`: of the batch, or null within an iteration.
absl::Status TomographyRunner::Preview(const float* images) {
  if (!run_.PreviewDue()) return absl::OkStatus();
  const auto wanted = WantedSlice(first_, count_);
  if (!wanted.has_value()) return absl::OkStatus();
  const int64_t at = wanted->second - first_;
  if (images != nullptr)
    return PublishPreview(wanted->first, images + at * layout_.image_bytes() / 4);
  OCTAVO_RETURN_IF_ERROR(reconstructor_->CopyImage(
      run_.stream(), at, {static_cast<float*>(preview_), layout_.image_bytes() / 4}));
  return PublishPreview(wanted->first, preview_);
}

absl::Status TomographyRunner::PublishPreview(const publish::TopicKey& key, const void* image) {
  const int64_t size = layout_.image_size();
  return run_.Publish({.key = key,
                       .data = image,
                       .dtype = DType::kF32,
                       .rows = size,
                       .columns = size,
                       .row_axis = "y",
                       .column_axis = "x",
                       .row_spacing_um = SliceSpacingUm(),
                       .column_spacing_um = SliceSpacingUm(),
                       .display_lo = 0,
                       .display_hi = 0});
}

absl::Status TomographyRunner::PreviewSoFar() {
  const std::optional<std::pair<publish::TopicKey, int64_t>> wanted =
      WantedSlice(0, layout_.slices());
  if (!wanted.has_value() || !layout_.tried().empty()) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const auto input, task_.port->Snapshot());
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout layout,
                          TomographyLayout::Make(spec_, input->info(), 0));
  OCTAVO_ASSIGN_OR_RETURN(const Prepared prepared,
                          PrepareSome(layout, input, layout.RowsOf(wanted->second, 1), false));
  std::vector<double> centers = layout.GivenCenters();
  if (centers.size() > 1) centers = {centers[static_cast<size_t>(wanted->second)]};
  TomographyConfig config = layout.ReconstructFor(0, 1, centers);
  config.algorithm = TomographyAlgorithm::kFbp;
  config.form = TomographyForm::kCorrected;
  config.subsets = 1;
  const absl::Status made =
      Reconstruct(config, prepared.sinograms(), 1, nullptr,
                  {static_cast<float*>(preview_), layout_.image_bytes() / 4}, nullptr);
  run_.Free(prepared.data);
  OCTAVO_RETURN_IF_ERROR(made);
  return PublishPreview(wanted->first, preview_);
}

// A separate reconstruction.
absl::Status TomographyRunner::Reconstruct(const TomographyConfig& config,
                                           DeviceSpan<const float> sinograms, int64_t count,
                                           DeviceSpan<const float> initial,
                                           DeviceSpan<float> images,
                                           const Reconstructor::Callback& callback) {
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Reconstructor::DeviceBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  absl::Status status;
  {
    auto made = Reconstructor::Create(config, run_.device());
    status = made.status();
    if (made.ok())
      status = (*made)
                   ->Run(run_.stream(), {.data = sinograms, .angle_first = false, .slices = count},
                         initial, images, callback)
                   .status();
    (void)run_.stream().Synchronize();
  }
  run_.Discharge(bytes);
  return status;
}

}  // namespace octavo::tomography
