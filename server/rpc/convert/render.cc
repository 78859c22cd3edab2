#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/convert.h"

namespace octavo::rpc {

absl::StatusOr<RenderOptions> DecodeRender(const v1::RenderVolumeRequest& in) {
  RenderOptions out;
  out.spec.volume = in.name();
  OCTAVO_RETURN_IF_ERROR(
      CheckEnum("rendering", in.rendering(), v1::Rendering_IsValid(in.rendering())));
  if (in.rendering() != v1::RENDERING_UNSPECIFIED)
    out.spec.rendering = static_cast<model::Rendering>(in.rendering());
  OCTAVO_RETURN_IF_ERROR(CheckEnum("axis", in.axis(), v1::Axis_IsValid(in.axis())));
  if (in.axis() != v1::AXIS_UNSPECIFIED) out.spec.axis = static_cast<model::FrameAxis>(in.axis());
  if (in.has_index()) {
    if (in.index() < -1) return FieldNotAllowed("index", in.index(), ">= -1");
    out.spec.plane_index = in.index();
  }
  out.spec.begin = in.begin();
  out.spec.end = in.end();
  out.spec.start.assign(in.start().begin(), in.start().end());
  out.spec.count.assign(in.count().begin(), in.count().end());
  OCTAVO_RETURN_IF_ERROR(CheckEnum("encoding", in.encoding(), v1::Encoding_IsValid(in.encoding())));
  if (in.encoding() != v1::ENCODING_UNSPECIFIED) out.encoding = in.encoding();
  OCTAVO_ASSIGN_OR_RETURN(out.image, DecodeImageOptions(in.image(), out.encoding));
  OCTAVO_ASSIGN_OR_RETURN(out.chunk_bytes, DecodeChunkBytes(in.chunk_bytes()));
  return out;
}

void EncodeRendered(const engine::Rendered& rendered, const picture::Picture& picture,
                    const RenderOptions& options, v1::RenderedPicture* out) {
  const model::VolumeStatus& volume = rendered.volume;
  const BoxProjection& shown = rendered.projection;
  const auto axis = static_cast<size_t>(shown.axis);
  EncodeVolume(volume, out->mutable_volume());
  out->set_rendering(static_cast<v1::Rendering>(options.spec.rendering));
  out->set_axis(static_cast<v1::Axis>(rendered.frame.axis));
  out->mutable_start()->Assign(shown.box.start, shown.box.start + 3);
  out->mutable_count()->Assign(shown.box.count, shown.box.count + 3);
  const double begin = static_cast<double>(shown.box.start[axis]),
               count = static_cast<double>(shown.box.count[axis]);
  out->set_begin_um(begin * volume.spacing_um[axis]);
  out->set_end_um((begin + count) * volume.spacing_um[axis]);
  out->set_encoding(options.encoding);
  out->mutable_shape()->Assign(picture.shape.begin(), picture.shape.end());
  out->mutable_axes()->Assign(picture.axes.begin(), picture.axes.end());
  out->mutable_spacing_um()->Assign(picture.spacing_um.begin(), picture.spacing_um.end());
  out->set_dtype(static_cast<v1::Dtype>(picture.dtype));
  out->set_unit(rendered.frame.scale.unit);
  out->set_scale_bar_um(picture.scale_bar_um);
  out->set_colour_bar_columns(picture.colour_bar_columns);
  out->mutable_warnings()->Assign(picture.warnings.begin(), picture.warnings.end());
  if (options.encoding == v1::ENCODING_RAW && !rendered.has_display) return;
  const auto set = [](double lo, double hi, v1::Levels* levels) {
    levels->set_lo(static_cast<float>(lo));
    levels->set_hi(static_cast<float>(hi));
  };
  set(picture.display_lo, picture.display_hi, out->mutable_levels());
  set(rendered.frame.scale.ValueOf(picture.display_lo),
      rendered.frame.scale.ValueOf(picture.display_hi), out->mutable_values());
}

}  // namespace octavo::rpc
