#include "server/tomography/push_preview.h"

#include <optional>
#include <vector>

#include "gpu/base/status.h"
#include "server/tomography/scanned_object.h"
#include "server/tomography/trial_slice.h"
#include "server/tomography/volume_series.h"

namespace octavo::tomography {

bool PushPreview::Due() const {
  return !planned_.stitched() && !planned_.makes_sinograms() &&
         previews_.WantedOf({.first = 0, .count = planned_.slices(), .slices = planned_.slices()})
             .has_value() &&
         run_.PreviewDue();
}

absl::Status PushPreview::Show() {
  const std::optional<WantedSlice> wanted =
      previews_.WantedOf({.first = 0, .count = planned_.slices(), .slices = planned_.slices()});
  if (!wanted.has_value() || !planned_.tried().empty()) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const auto input, port_.Snapshot());
  OCTAVO_ASSIGN_OR_RETURN(
      const TomographyLayout layout,
      TomographyLayout::Make(OfNewest(spec_, input->info().projections), input->info(), 0));
  OCTAVO_ASSIGN_OR_RETURN(const PreparedRows prepared,
                          rows_.Prepare(layout, input, layout.RowsOf(wanted->slice, 1), false));
  std::vector<double> centers = layout.GivenCenters();
  if (centers.size() > 1) centers = {centers[static_cast<size_t>(wanted->slice)]};
  const absl::Status made =
      MakeTrialSlice(run_, {}, layout.BackProjectionFor(0, 1, centers), prepared.sinograms(),
                     {previews_.image(), planned_.image_voxels()});
  run_.Free(prepared.data);
  OCTAVO_RETURN_IF_ERROR(made);
  return previews_.Publish(wanted->key, planned_.Image(previews_.image()),
                           SliceSpacingOf(spec_, port_.spec().pixel_size_um));
}

}  // namespace octavo::tomography
