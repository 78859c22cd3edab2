#include "server/tomography/push_preview.h"

#include <memory>
#include <optional>
#include <vector>

#include "gpu/base/status.h"
#include "server/tomography/scanned_object.h"

namespace octavo::tomography {

bool PushPreview::Due() const {
  return !planned_.stitched() &&
         previews_.WantedOf({.first = 0, .count = planned_.slices(), .slices = planned_.slices()})
             .has_value() &&
         run_.PreviewDue();
}

absl::Status PushPreview::Show() {
  const std::optional<WantedSlice> wanted =
      previews_.WantedOf({.first = 0, .count = planned_.slices(), .slices = planned_.slices()});
  if (!wanted.has_value() || !planned_.tried().empty()) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const auto input, port_.Snapshot());
  OCTAVO_ASSIGN_OR_RETURN(const TomographyLayout layout,
                          TomographyLayout::Make(spec_, input->info(), 0));
  OCTAVO_ASSIGN_OR_RETURN(const PreparedRows prepared,
                          rows_.Prepare(layout, input, layout.RowsOf(wanted->slice, 1), false));
  std::vector<double> centers = layout.GivenCenters();
  if (centers.size() > 1) centers = {centers[static_cast<size_t>(wanted->slice)]};
  TomographyConfig config = layout.ReconstructFor(0, 1, centers);
  config.algorithm = TomographyAlgorithm::kFbp;
  config.form = TomographyForm::kCorrected;
  // What only the job's own algorithm has would be refused.
  config.subsets = 1;
  config.relaxation = 1;
  config.has_min = config.has_max = false;
  config.fourier_accuracy = TomographyConfig::kUsualAccuracy;
  const absl::Status made =
      Reconstruct(config, prepared.sinograms(), {previews_.image(), planned_.image_bytes() / 4});
  run_.Free(prepared.data);
  OCTAVO_RETURN_IF_ERROR(made);
  return previews_.Publish(wanted->key, previews_.image(), planned_.image_size(),
                           SliceSpacingOf(spec_, port_.spec().pixel_size_um));
}

absl::Status PushPreview::Reconstruct(const TomographyConfig& config,
                                      DeviceSpan<const float> sinograms, DeviceSpan<float> image) {
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Reconstructor::DeviceBytes(config, run_.device()));
  OCTAVO_RETURN_IF_ERROR(run_.Charge(bytes));
  absl::Status status;
  {
    auto made = Reconstructor::Create(config, run_.device());
    status = made.status();
    if (made.ok())
      status = (*made)
                   ->Run(run_.stream(), {.data = sinograms, .angle_first = false, .slices = 1},
                         nullptr, image, nullptr)
                   .status();
    (void)run_.stream().Synchronize();
  }
  run_.Discharge(bytes);
  return status;
}

}  // namespace octavo::tomography
