#include "server/tomography/preview_maker.h"

#include "gpu/base/status.h"

namespace octavo::tomography {

absl::Status PreviewMaker::Begin(int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(void* const image, run_.Allocate(bytes));
  image_ = static_cast<float*>(image);
  return absl::OkStatus();
}

std::optional<WantedSlice> PreviewMaker::WantedOf(const SliceRange& range) const {
  for (const publish::Wanted& wanted : run_.Wanted()) {
    if (!wanted.previews || wanted.key.product != model::Product::kBscan ||
        wanted.key.axis != model::FrameAxis::kZ)
      continue;
    const int64_t slice = wanted.key.plane_index < 0 ? range.slices / 2 : wanted.key.plane_index;
    if (slice >= range.first && slice < range.first + range.count)
      return WantedSlice{.key = wanted.key, .slice = slice};
  }
  return std::nullopt;
}

absl::Status PreviewMaker::Publish(const publish::TopicKey& key, const SliceImage& image,
                                   const SliceSpacing& spacing) {
  return run_.Publish({.key = key,
                       .data = image.data,
                       .dtype = DType::kF32,
                       .rows = image.rows,
                       .columns = image.columns,
                       .row_axis = "y",
                       .column_axis = "x",
                       .row_spacing_um = spacing.rows.um,
                       .column_spacing_um = spacing.columns.um,
                       .spacing_assumed = spacing.rows.assumed || spacing.columns.assumed,
                       .display_lo = 0,
                       .display_hi = 0});
}

}  // namespace octavo::tomography
