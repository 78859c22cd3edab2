#include "server/engine/rendering.h"

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/model/resolved_scan.h"
#include "server/publish/plane_frame.h"
#include "server/volume/volume_reader.h"

namespace octavo::engine {
namespace {

std::optional<math::Reduction> ReductionOf(model::Rendering rendering) {
  switch (rendering) {
    case model::Rendering::kMax: return math::Reduction::kMax;
    case model::Rendering::kMean: return math::Reduction::kMean;
    case model::Rendering::kMin: return math::Reduction::kMin;
    case model::Rendering::kStd: return math::Reduction::kStd;
    case model::Rendering::kPlane: break;
  }
  return std::nullopt;
}

absl::Status BadRange(const char* field, int64_t given, int64_t lowest, int64_t highest,
                      const model::VolumeStatus& volume, int axis) {
  return WithInfo(
      absl::OutOfRangeError(absl::StrCat(field, " is ", given, "; allowed ", lowest, " to ",
                                         highest, " along axis ", volume.axes[axis], " of ",
                                         volume.name)),
      {.reason = Reason::kBadRange,
       .field = field,
       .numbers = {{"axis", volume.axes[axis]}, {"extent", absl::StrCat(volume.shape[axis])}}});
}

/// Narrows the box along the axis to what is shown.
absl::Status Narrow(const model::VolumeStatus& volume, const model::RenderSpec& spec,
                    BoxProjection* p) {
  int64_t &start = p->box.start[p->axis], &count = p->box.count[p->axis];
  if (spec.rendering == model::Rendering::kPlane) {
    if (spec.begin != 0 || spec.end != 0) {
      return InvalidField(spec.begin != 0 ? "begin" : "end",
                          "is given, but rendering is PLANE, which takes index; allowed with MAX, "
                          "MEAN, MIN, STD");
    }
    const int64_t index = spec.plane_index.value_or(-1) < 0 ? start + count / 2 : *spec.plane_index;
    if (index < start || index >= start + count)
      return BadRange("index", index, start, start + count - 1, volume, p->axis);
    start = index;
    count = 1;
    return absl::OkStatus();
  }
  if (spec.plane_index.has_value()) {
    return InvalidField("index",
                        "is given, but rendering is a projection, which takes begin and "
                        "end; allowed with PLANE");
  }
  if (spec.begin == 0 && spec.end == 0) return absl::OkStatus();
  if (!spec.start.empty() || !spec.count.empty()) {
    return InvalidField(spec.begin != 0 ? "begin" : "end",
                        "is given with a box (start, count), which says the same; allowed one of "
                        "them");
  }
  const int64_t extent = volume.shape[p->axis], end = spec.end == 0 ? extent : spec.end;
  if (spec.begin < 0 || spec.begin >= extent)
    return BadRange("begin", spec.begin, 0, extent - 1, volume, p->axis);
  if (end <= spec.begin || end > extent)
    return BadRange("end", end, spec.begin + 1, extent, volume, p->axis);
  start = spec.begin;
  count = end - spec.begin;
  return absl::OkStatus();
}

/// The values to show as dark and bright, in stored units: those of the volume, or of what it was
/// acquired as if it still holds that; else the range of its levels.
bool DisplayOf(const model::VolumeStatus& volume, double* lo, double* hi) {
  if (volume.display_lo < volume.display_hi) {
    std::tie(*lo, *hi) = std::pair(volume.display_lo, volume.display_hi);
  } else if (volume.origin != nullptr && volume.quantity == model::Quantity::kNone &&
             volume.dtype == volume.origin->chain.output) {
    std::tie(*lo, *hi) = std::pair(volume.origin->display_lo, volume.origin->display_hi);
  } else if (volume.has_levels && HighestOf(volume.dtype) > 0) {
    *lo = static_cast<double>(LowestOf(volume.dtype));
    *hi = static_cast<double>(HighestOf(volume.dtype));
  }
  return *lo < *hi;
}

}  // namespace

absl::StatusOr<Rendered> PlanRendering(const model::VolumeStatus& volume,
                                       const model::RenderSpec& spec) {
  if (volume.is_raw) {
    return InvalidField("name", absl::StrCat("is ", volume.name,
                                             ", which are raw spectra; a reprocess job makes a "
                                             "volume of them, which can be rendered"));
  }
  Rendered out{.volume = volume, .projection = {.kind = ReductionOf(spec.rendering)}};
  BoxProjection& p = out.projection;
  const bool plane = !p.kind.has_value();
  p.axis = spec.axis.has_value() ? publish::PositionOf(volume, *spec.axis)
           : plane               ? 0
                                 : publish::PositionOf(volume, model::FrameAxis::kZ);
  OCTAVO_ASSIGN_OR_RETURN(p.box, volume::BoxOf(volume.shape, spec.start, spec.count));
  OCTAVO_RETURN_IF_ERROR(Narrow(volume, spec, &p));

  model::Frame& frame = out.frame;
  frame.parent = model::ParentOf(volume);
  frame.volume = volume.name;
  frame.volume_index = volume.index;
  frame.product = plane ? model::Product::kBscan : model::Product::kMip;
  frame.axis = volume.axes[p.axis] == "x"   ? model::FrameAxis::kX
               : volume.axes[p.axis] == "y" ? model::FrameAxis::kY
                                            : model::FrameAxis::kZ;
  if (plane) frame.plane_index = p.box.start[p.axis];
  frame.acquired = volume.acquired_end;
  frame.dtype = ResultOf(p, volume.dtype);
  for (int d = 0; d < 3; ++d) {
    if (d == p.axis) continue;
    frame.shape.push_back(p.box.count[d]);
    frame.axes.push_back(volume.axes[d]);
    frame.spacing_um.push_back(volume.spacing_um[d]);
    frame.row_spacing_assumed = std::exchange(frame.column_spacing_assumed, !volume.IsLength(d));
  }
  if (frame.shape[0] > kMostRenderedValues / frame.shape[1]) {
    return InvalidField("count",
                        absl::StrCat("makes a picture of ", frame.shape[0], " x ", frame.shape[1],
                                     " values (before it is shrunk); allowed ", kMostRenderedValues,
                                     " in all: show a box"));
  }
  frame.display_lo = frame.display_hi = 0;
  out.has_display = DisplayOf(volume, &frame.display_lo, &frame.display_hi);
  frame.scale = model::ValueScaleOf(volume);
  if (spec.rendering == model::Rendering::kStd) {
    // Deviations are differences of values; those of values in a range are at most half of it.
    frame.display_hi = (frame.display_hi - frame.display_lo) / 2;
    frame.display_lo = 0;
    frame.scale.offset = 0;
  }
  return out;
}

}  // namespace octavo::engine
